"""Layers that cannot be traced: sublayers or whole layers are replayed, what they save is counted."""
