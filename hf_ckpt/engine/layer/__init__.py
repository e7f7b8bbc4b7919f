"""A layer as the engine sees it: its call, the tensors and objects behind its attributes, its state."""
