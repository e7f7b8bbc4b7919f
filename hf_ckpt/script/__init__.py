"""Runs a user's training script for two steps, to see what it does.

``run`` runs the script as ``python`` would and stops it, ``trainers`` puts the callbacks into every Trainer that it
trains, ``nothing_written`` keeps it from writing checkpoints and logs. ``examination`` is what was seen.
"""
