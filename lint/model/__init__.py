"""What the facts mean for activation checkpointing: typed events, the joined run, checkpointed regions."""
