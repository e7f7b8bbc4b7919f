"""Budgets on what people fine-tune with: ``python -m tests.acceptance`` writes ``hf_ckpt/BUDGETS.md``."""
