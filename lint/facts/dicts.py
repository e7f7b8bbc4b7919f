"""Dicts built from other dicts."""

from __future__ import annotations

from .values import UNKNOWN, Dict, Value, join


def merge_into(target: Dict, value: Value) -> None:
    """``target.update(value)``."""
    if isinstance(value, Dict):
        if value.open:
            target.items = {key: join(found, UNKNOWN) for key, found in target.items.items()}
        target.items.update(value.items)
        target.open = target.open or value.open
    else:
        target.items = {key: join(found, UNKNOWN) for key, found in target.items.items()}
        target.open = True
