"""What the device has, and what the model, its gradients and its optimizer take of it."""
