"""Host memory that saved tensors wait in, and the copies that take them there and back."""
