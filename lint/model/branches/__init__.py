"""Branches with and without a checkpoint, compared by what they compute."""
