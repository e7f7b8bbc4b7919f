"""Runs hf_ckpt on torch's own CUDA build without a GPU: simulated cards (README.md)."""
