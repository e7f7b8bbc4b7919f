"""Faults drawn anew in every run: each ends right, or in one clear error with everything as it was."""
