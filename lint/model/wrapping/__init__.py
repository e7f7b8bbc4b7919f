"""Torch's checkpoint wrappers: which modules they go around, under which policy, and what is called otherwise then."""
