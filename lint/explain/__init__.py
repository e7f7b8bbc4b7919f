"""``ckpt-lint explain``: which checkpointing holds in a run, line by line."""
