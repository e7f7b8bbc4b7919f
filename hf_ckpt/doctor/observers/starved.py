"""Checkpointed parameters that no gradient but zeros reaches, step after step.

One step shows nothing: a gate that begins at zero (adaLN, LoRA, a zero convolution) lets no gradient pass until it has
learned to open, an expert may get no token, a branch may be dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ...compat.wrappers import local_shard
from .checkpoint_calls import has_gradient

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..facts import CallFacts
    from .checkpoint_calls import Held, NotedCall

#: Steps after which zeros are no accident any more, where training goes on so long.
PATIENCE = 20
#: Steps that a training must have for a word about zeros.
FEWEST = 4


@dataclass(slots=True)
class _Case:
    """A call that was starved in every step so far; ``cut_off`` where its parameters have no gradient at all."""

    call: NotedCall
    facts: CallFacts
    cut_off: bool


class Starved:
    """Calls of torch's checkpoint whose parameters are starved in every step."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self._cases: dict[tuple[Held, ...], _Case] = {}
        self._fed: set[tuple[Held, ...]] = set()
        self._may_open = False
        self._steps = 0

    def note(self, calls: Sequence[NotedCall]) -> None:
        """The backwards of a step in which some parameter of the model got a gradient are over."""
        learning: set[tuple[Any, ...]] = set()
        for call in _one_of_each(calls):
            facts = call.after_backward()
            line = facts.place, facts.kinds
            is_fed = any(map(has_gradient, call.parameters()))
            # What follows layers that learn is the rest of a stack: LLaVA takes its images before the last layer.
            if facts.trained and not is_fed and line not in learning:
                cut_off = facts.lost == facts.trained
                self._cases.setdefault(call.trained, _Case(call, facts, cut_off)).cut_off &= cut_off
            else:
                self._fed.add(call.trained)
            if is_fed:
                learning.add(line)
        self._let_go()

    def look_again(self) -> None:
        """A later step's backwards are over; nobody noted its calls."""
        for key, case in self._cases.items():
            if any(map(has_gradient, case.call.parameters())):
                self._fed.add(key)
        self._let_go()

    def cut_off(self) -> tuple[CallFacts, ...]:
        """The calls that no graph connects with the loss."""
        return tuple(case.facts for case in self._cases.values() if case.cut_off)

    def all(self) -> tuple[CallFacts, ...]:
        """The same, and the calls that got zeros in enough steps, which no gate that may still open explains."""
        zeros = [case.facts for case in self._cases.values() if not case.cut_off]
        is_accident = self._steps < FEWEST or self._may_open
        return (*self.cut_off(), *(() if is_accident else zeros))

    def _let_go(self) -> None:
        self._steps += 1
        for key in self._fed:
            self._cases.pop(key, None)
        zeros = any(not case.cut_off for case in self._cases.values())
        self._may_open = zeros and _has_opening_gate(self.model)


def _one_of_each(calls: Sequence[NotedCall]) -> Iterable[NotedCall]:
    """The first call of each layer: all micro-batches of a step add to the same gradients."""
    first: dict[tuple[Held, ...], NotedCall] = {}
    for call in calls:
        first.setdefault(call.trained, call)
    return first.values()


def _has_opening_gate(model: torch.nn.Module) -> bool:
    """Whether a parameter multiplies by zero so far and has a gradient that will open it.

    Not what is added, nor rows of a table that are looked up.
    """
    for module in model.modules():
        if not isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag):
            for name, parameter in module.named_parameters(recurse=False):
                if not name.endswith("bias") and has_gradient(parameter) and _opens(parameter):
                    return True
    return False


def _opens(parameter: torch.nn.Parameter) -> bool:
    """Whether a row of it is zero and has a gradient; one without rows is one row."""
    assert parameter.grad is not None
    values, gradient = local_shard(parameter.detach()), local_shard(parameter.grad)
    if values.dim() < 2:
        return not bool(values.any())
    closed = ~values.flatten(1).any(1)
    return bool((closed & gradient.flatten(1).any(1)).any())
