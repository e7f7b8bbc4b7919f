"""Bytes of optimizer state a trainable parameter will get, by the optimizer's name. Pure, no torch.

Names are ``TrainingArguments.optim`` values or optimizer class names. State of a type's own (8-bit blocks with their
scales, factored second moments) is counted; a few bytes of step counters are not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: bitsandbytes leaves smaller tensors in 32 bit.
_SMALLEST_QUANTIZED = 4096
#: bitsandbytes keeps one float32 scale for so many 8-bit values.
_BLOCK = 256


@dataclass(frozen=True, slots=True)
class StateRule:
    """``moments`` tensors of the parameter's shape: ``itemsize`` bytes an element (None: as the parameter)."""

    moments: int
    itemsize: float | None = None
    factored: bool = False
    known: bool = True


#: First match wins; searched in the lower-case name.
_RULES: tuple[tuple[str, StateRule], ...] = (
    (r"paged", StateRule(0)),
    (r"^lomo|^sgd$", StateRule(0)),
    (r"adafactor|adalomo", StateRule(1, 4, factored=True)),
    (r"lion.*8bit", StateRule(1, 1)),
    (r"lion.*32bit", StateRule(1, 4)),
    (r"lion|momentum|muon", StateRule(1)),
    (r"ademamix.*8bit", StateRule(3, 1)),
    (r"ademamix", StateRule(3, 4)),
    (r"adam.*4bit", StateRule(2, 0.5)),
    (r"(adam|rmsprop).*8bit", StateRule(2, 1)),
    (r"adam.*32bit|adam.*apex|fusedadam", StateRule(2, 4)),
    (r"adagrad|rmsprop", StateRule(1)),
    (r"adam", StateRule(2)),
)


#: What steps every parameter at once without a fused kernel has a second copy of one moment (torch/optim/adam.py).
_FOREACH = re.compile(r"^(adamw?_torch|adamw?|rmsprop|adagrad)$")


def foreach_copies(name: str) -> int:
    """How many temporary tensors of a parameter's shape the step of an optimizer makes for all parameters at once."""
    return int(bool(_FOREACH.match(name.lower())))


def rule_for(name: str) -> StateRule:
    """The rule of an optimizer; an unknown one is taken for 32-bit Adam, and says so by ``known``."""
    lower = name.lower()
    for pattern, rule in _RULES:
        if re.search(pattern, lower):
            return rule
    return StateRule(2, 4, known=False)


def state_bytes(rule: StateRule, shape: Sequence[int], itemsize: int) -> int:
    """State bytes for one parameter of this shape and element size.

    Args:
        rule: What the optimizer keeps for a parameter.
        shape: Shape of the parameter.
        itemsize: Bytes an element.
    """
    elements = prod(shape)
    if rule.factored:
        width = elements if len(shape) < 2 else elements // shape[-1] + elements // shape[-2]
        return int(4 * width)
    size: float = itemsize if rule.itemsize is None else rule.itemsize
    if size <= 1 and elements < _SMALLEST_QUANTIZED:
        return rule.moments * 4 * elements
    scales = 4 * (elements // _BLOCK) if size <= 1 else 0
    return rule.moments * (int(size * elements) + scales)
