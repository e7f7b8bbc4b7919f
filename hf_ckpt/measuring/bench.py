"""Times policies against no checkpointing, in alternating steps of one run, and counts what they hold and peak at."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import torch

from .._apply import apply
from ..policy import parse_policy
from .peak import PeakMeter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..policy import Policy


@dataclass(frozen=True, slots=True)
class PolicyTiming:
    """One policy: bytes held after forward, bytes at the peak of a step, and its step time over that of ``none``.

    ``ratio`` is the median over rounds of one step's time divided by that of ``none`` in the same round.
    """

    policy: str
    held_bytes: int
    peak_bytes: int
    ratio: float


def bench(
    model: torch.nn.Module,
    ids: torch.Tensor,
    policies: Sequence[Policy],
    *,
    rounds: int = 7,
    engine: str = "traced",
    tick: Callable[[], None] = lambda: None,
) -> list[PolicyTiming]:
    """Run training steps of every policy and of ``none`` in turn, and say what each cost.

    The model is restored; its gradients are those of the last step.

    Args:
        model: A model in training mode.
        ids: Token ids (batch, length), int64, on the model's device; they are the labels too.
        policies: The policies to compare.
        rounds: How many steps are timed of each.
        engine: The engine, as in :func:`hf_ckpt.apply`.
        tick: Called after each round.

    Returns:
        The timings in seconds: that of ``none``, and the others in the order of ``policies``.

    Raises:
        CkptError: What :func:`hf_ckpt.apply` raises.
        BudgetError: A budget is smaller than the smallest plan for these ids.
    """
    entries = [parse_policy("none"), *policies]
    counted = [_count(model, ids, policy, engine) for policy in entries]
    times: list[list[float]] = [[] for _ in entries]
    for _ in range(rounds):
        for place, policy in enumerate(entries):
            times[place].append(_timed(model, ids, policy, engine))
        tick()
    return [
        PolicyTiming(str(policy), *counts, median(t / base for t, base in zip(own, times[0], strict=True)))
        for policy, counts, own in zip(entries, counted, times, strict=True)
    ]


def _count(model: torch.nn.Module, ids: torch.Tensor, policy: Policy, engine: str) -> tuple[int, int]:
    handle = apply(model, policy, engine=engine)
    try:
        _step(model, ids)  # traces, checks and plans are made here
        with handle.measure():
            _step(model, ids)
        with PeakMeter(ids.device) as meter:
            _step(model, ids)
        return handle.report().held_bytes or 0, meter.peak_bytes
    finally:
        handle.restore()


def _timed(model: torch.nn.Module, ids: torch.Tensor, policy: Policy, engine: str) -> float:
    handle = apply(model, policy, engine=engine)
    try:
        for _ in range(2):  # a fresh policy checks its first rebuild, and a budget plans
            _step(model, ids)
        _wait(ids.device)
        start = time.perf_counter()
        _step(model, ids)
        _wait(ids.device)
        return time.perf_counter() - start
    finally:
        handle.restore()


def _step(model: torch.nn.Module, ids: torch.Tensor) -> None:
    model.zero_grad()
    model(input_ids=ids, labels=ids, use_cache=False).loss.backward()


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
