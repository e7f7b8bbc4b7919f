"""Tensors of a program: batches of data, what needs a gradient, and which values are certainly tensors."""
