"""One long training under policies beside the same one without: what grows, and whether the weights are equal."""

from __future__ import annotations

import copy
import gc
import random
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

import hf_ckpt
from hf_ckpt.engine import TRACES, clear_traces
from hf_ckpt.measuring.memory_limit import MemoryLimit

from ..models import VOCABULARY
from ..state_machine.machine import adapted_llama

if TYPE_CHECKING:
    from torch import nn

POLICIES = ("budget=0.5", "balanced", "full", "budget=100MiB", "dots_saveable", "segments(2)")
LENGTHS = (4, 7, 11, 12, 16)
#: Bytes that tensors may take; a step of the untouched twin takes a few MB.
LIMIT = 48 * 2**20
#: Phases of one policy each: a quarter of them, the unit of :meth:`Soak.growth`, goes twice through the policies.
PHASES = 48
#: Steps under one policy, at least.
PHASE = 20


@dataclass(frozen=True, slots=True)
class Counts:
    """What there is of everything at one moment, with no policy on the model.

    Attributes:
        objects: Python objects that the garbage collector tracks, without the recipes.
        storages: Storages of tensors.
        traces: Traces that the process remembers.
        hooks: Hooks on the model's modules.
        recipes: What a trace remembers of the plans that it met in the phase before, and may forget.
    """

    objects: int
    storages: int
    traces: int
    hooks: int
    recipes: int


@dataclass(frozen=True, slots=True)
class Soak:
    """What a run of so many steps showed."""

    steps: int
    counts: tuple[Counts, ...]
    evaluations: int
    generations: int
    equal_weights: bool

    def growth(self, what: str) -> float:
        """How many more there are a step, from the second quarter of the run to the last."""
        values = [getattr(found, what) for found in self.counts]
        quarter = max(1, len(values) // 4)
        return (mean(values[-quarter:]) - mean(values[quarter : 2 * quarter])) / (self.steps / 2)

    @property
    def recipes_a_step(self) -> float:
        """The most recipes that a phase made, by its steps."""
        return max(found.recipes for found in self.counts) * len(self.counts) / self.steps


def soak(steps: int, seed: int = 0) -> Soak:
    """Train both models for so many steps, in phases of one policy each."""
    rng = random.Random(seed)
    ours, twin = (copy.deepcopy(adapted_llama()).train() for _ in range(2))
    optimizers = [torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9) for model in (ours, twin)]
    clear_traces()
    counts, uses = [], {"evaluate": 0, "generate": 0}
    phase = max(PHASE, steps // PHASES)
    with MemoryLimit(LIMIT, ours):
        for start in range(0, steps, phase):
            handle = hf_ckpt.apply(ours, POLICIES[start // phase % len(POLICIES)], optimizer=optimizers[0])
            for _ in range(min(phase, steps - start)):
                _turn(rng, (ours, twin), optimizers, uses)
            handle.restore()
            del handle
            counts.append(count_all(ours))
    equal = all(torch.equal(a, b) for a, b in zip(ours.parameters(), twin.parameters(), strict=True))
    return Soak(steps, tuple(counts), uses["evaluate"], uses["generate"], equal)


def _turn(rng: random.Random, models: tuple[Any, Any], optimizers: list[Any], uses: dict[str, int]) -> None:
    """One step of both models, and now and then an evaluation, a generation, another adapter."""
    size, length, seed = rng.randint(1, 2), rng.choice(LENGTHS), rng.randrange(1 << 30)
    event = rng.choices(("", "evaluate", "generate", "a", "b"), (20, 2, 1, 1, 1))[0]
    ids = torch.randint(3, VOCABULARY, (size, length), generator=torch.Generator().manual_seed(seed))
    _train(models[0], optimizers[0], ids, event, seed)
    with _disable_current_modes():  # the limit is that of the model with the policy
        _train(models[1], optimizers[1], ids, event, seed)
    if event in uses:
        uses[event] += 1


def _train(model: Any, optimizer: Any, ids: torch.Tensor, event: str, seed: int) -> None:
    if event in ("a", "b"):
        model.set_adapter(event)
    torch.manual_seed(seed)
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if event in ("evaluate", "generate"):
        _use(model, ids, event)


@torch.no_grad()
def _use(model: Any, ids: torch.Tensor, event: str) -> None:
    model.eval()
    if event == "generate":
        model.generate(input_ids=ids, max_new_tokens=2, do_sample=False)
    else:
        model(input_ids=ids)
    model.train()


def count_all(model: nn.Module) -> Counts:
    """Count everything, once the recipes are gone: a trace keeps those of the latest plans, so many and no more."""
    recipes = _forget_recipes()
    gc.collect()
    objects = gc.get_objects()
    storages = {t.untyped_storage()._cdata for t in objects if issubclass(type(t), torch.Tensor) and not _is_fake(t)}
    tables = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks")
    hooks = sum(len(vars(module)[table]) for module in model.modules() for table in tables)
    return Counts(len(objects), len(storages), len(TRACES._entries), hooks, recipes)


def _forget_recipes() -> int:
    entries = TRACES._entries.values()
    traces = [trace for entry in entries for trace in (*entry.symbolic, *entry.per_shape.values())]
    recipes = sum(len(trace.recipes) for trace in traces)
    for trace in traces:
        trace.recipes.clear()
    return recipes


def _is_fake(tensor: torch.Tensor) -> bool:
    return type(tensor).__name__ == "FakeTensor"
