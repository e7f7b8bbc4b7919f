"""What `hf-ckpt plan` says of every policy at every size: the rows, and how they are shown."""
