"""Calls of functions and modules: what they come to, whether they fit, and checkpoints that are called for nothing."""
