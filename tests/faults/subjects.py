"""The models that faults are put into: two of them with dropout, one with experts, one with adapters."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from ..models import batch, build, build_encoder, same, step

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import nn

#: Tokens of the batches: the second one is met before its plan is, the third is foreseen.
LENGTHS = (12, 12, 20)
POLICIES = (
    ("full", "traced"),
    ("balanced", "traced"),
    ("attention+mlp", "traced"),
    ("dots_saveable", "traced"),
    ("budget=0.5", "traced"),
    ("budget=100GiB", "traced"),
    ("full", "torch"),
    ("attention", "torch"),
    ("segments(2)", "torch"),
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A model by its name, and what an untouched one makes of every batch: loss and gradients."""

    name: str
    model: nn.Module
    plain: dict[int, tuple[torch.Tensor, list[Any]]]

    def fresh(self) -> nn.Module:
        """A copy of its own for one injection."""
        return copy.deepcopy(self.model)

    def after(self, change: Callable[[nn.Module], object]) -> Subject:
        """The same beside a model that a user changed: torch's backward hooks, for one, round sums in another order."""
        model = self.fresh()
        change(model)
        return replace(self, plain=_steps(model))

    def wrong_steps(self, model: nn.Module) -> list[int]:
        """The lengths at which a step of ``model`` is not that of the untouched one, bit for bit."""
        return [n for n in dict.fromkeys(LENGTHS) if not same(step(model, batch(length=n)), self.plain[n])]


SUBJECTS = ("llama", "gpt2", "bert", "mixtral", "llama-lora")


@cache
def subject(name: str) -> Subject:
    """The subject of this name; its model has run a step, as transformers sets attributes of its own in one."""
    model = build_encoder() if name == "bert" else build(name.removesuffix("-lora"), lora=name.endswith("-lora"))
    plain = _steps(model)
    model.zero_grad()
    return Subject(name, model, plain)


def _steps(model: nn.Module) -> dict[int, tuple[torch.Tensor, list[Any]]]:
    return {n: step(model, batch(length=n)) for n in dict.fromkeys(LENGTHS)}
