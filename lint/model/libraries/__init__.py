"""What transformers, peft, accelerate, FSDP and launchers make of a run."""
