"""ckpt-lint on the examples of its own pages, spelled otherwise: what a program means decides, not how it is written."""
