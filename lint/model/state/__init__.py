"""What a forward pass reads and changes beside its inputs: modes, buffers, random numbers."""
