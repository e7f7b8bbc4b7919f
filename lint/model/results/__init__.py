"""What comes out of a checkpointed region, and where it goes."""
