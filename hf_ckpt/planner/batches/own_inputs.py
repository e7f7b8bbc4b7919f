"""Which tensors only one layer is given beside its hidden states: those of a second stream, new in every layer.

Masks and rotary tables are made once and given to every layer, so the planner counts them once. The text stream of a
diffusion transformer goes through the layers as the image stream does, and each layer holds its own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...ledger import LayerLedger


def own_inputs(given: Sequence[Sequence[int]]) -> tuple[frozenset[int], ...]:
    """For each layer the places of what only it is given, its hidden states (the first tensor) aside.

    ``given`` are the storages, by key, of the tensors that each layer is given.
    """
    layers = Counter(key for keys in given for key in set(keys))
    return tuple(
        frozenset(place for place, key in enumerate(keys) if place and layers[key] == 1 and key not in keys[:place])
        for keys in given
    )


def with_own_inputs(
    ledgers: Sequence[LayerLedger | None], places: Sequence[frozenset[int]]
) -> tuple[LayerLedger | None, ...]:
    """The ledgers with the inputs at these places marked; a ledger's first buffers are its inputs in their order."""
    return tuple(
        ledger if ledger is None else _marked(ledger, own) for ledger, own in zip(ledgers, places, strict=True)
    )


def _marked(ledger: LayerLedger, places: frozenset[int]) -> LayerLedger:
    if not places:
        return ledger
    buffers = tuple(replace(b, own=True) if b.index in places else b for b in ledger.buffers)
    return replace(ledger, buffers=buffers)
