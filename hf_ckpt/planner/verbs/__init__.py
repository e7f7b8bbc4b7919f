"""What may happen to a saved buffer between forward and backward, and what it costs: one verb a file."""
