"""Thousands of steps of one process: nothing grows, and the weights are those of an untouched model."""
