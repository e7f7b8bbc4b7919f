"""What is frozen: modules, layers of a list, whole models, running statistics."""
