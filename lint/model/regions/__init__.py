"""Checkpointed regions: what runs in them, what goes in, and regions in regions."""
