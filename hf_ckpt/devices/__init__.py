"""Cards that need not be at hand: their rates with sources, and the ops that CUDA runs on them, traced without CUDA."""
