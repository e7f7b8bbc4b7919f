"""The contexts around a statement, by what they change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values import Result, options
from ..names import canonical

if TYPE_CHECKING:
    from ...facts.values import Place, Value

_PRECISION = frozenset(("torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast", "contextlib.nullcontext"))


def is_plain(place: Place) -> bool:
    """Whether the contexts around ``place`` change at most the precision that operators compute in."""
    return all(_is_precision(option) for context in place.contexts for option in options(context))


def _is_precision(value: Value) -> bool:
    return isinstance(value, Result) and canonical(value.call.name) in _PRECISION
