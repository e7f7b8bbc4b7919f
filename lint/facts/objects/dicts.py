"""Dicts built from other dicts."""

from __future__ import annotations

from ..values import UNKNOWN, Dict, Seq, Value, join
from .containers import GAP, text_of


def merge_into(target: Dict, value: Value) -> None:
    """``target.update(value)``."""
    if isinstance(value, Dict):
        if value.open:
            target.items = {key: join(found, UNKNOWN) for key, found in target.items.items()}
        target.items.update(value.items)
        target.keys += value.keys
        target.open = target.open or value.open
    elif isinstance(value, Seq) and value.items and all(map(_is_pair, value.items)):
        _merge_pairs(target, value)
    else:
        target.items = {key: join(found, UNKNOWN) for key, found in target.items.items()}
        target.open = True


def merge_deeply(target: Dict, value: Value) -> None:
    """``OmegaConf.merge(target, value)``: settings inside of settings keep what the others do not say."""
    inner = {key: item for key, item in target.items.items() if isinstance(item, Dict)}
    merge_into(target, value)
    for key, before in inner.items():
        after = target.items.get(key)
        if isinstance(after, Dict) and after is not before:
            made = Dict(dict(before.items), before.open, after.node, after.place)
            merge_deeply(made, after)
            target.items[key] = made


def _is_pair(value: Value) -> bool:
    return isinstance(value, Seq) and len(value.items) == 2 and not value.open


def _merge_pairs(target: Dict, pairs: Seq) -> None:
    """``dict([("conv", conv), ("norm", norm)])``."""
    target.open = target.open or pairs.open
    for pair in pairs.items:
        if isinstance(pair, Seq):
            key = text_of(pair.items[0])
            target.open = target.open or key is None or GAP in key
            target.items[GAP if key is None else key] = pair.items[1]
