"""What may happen to a saved tensor between forward and backward, one verb a file."""
