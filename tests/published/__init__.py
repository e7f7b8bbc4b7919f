"""`hf-ckpt plan` held against published measurements: ``python -m tests.published`` writes ``hf_ckpt/PUBLISHED.md``."""
