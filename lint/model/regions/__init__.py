"""Checkpointed regions: what runs in them, what goes in, what comes out, and regions in regions."""
