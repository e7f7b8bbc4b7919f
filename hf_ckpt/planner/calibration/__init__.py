"""The rates of a device: measured once, kept on disk."""
