"""transformers' own tests of its checkpointing, with our policies put in place of its switch."""
