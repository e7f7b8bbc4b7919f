"""Plans against what torch's allocator gives on simulated cards: ``python -m tests.gpu_sim.judge`` (README.md)."""
