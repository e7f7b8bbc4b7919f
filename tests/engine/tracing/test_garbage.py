"""Garbage collection while a layer is traced."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest

import hf_ckpt
from hf_ckpt.engine import Mode, clear_traces
from hf_ckpt.engine.tracing import cache
from hf_ckpt.engine.tracing.undisturbed import collections_after

from ...models import build, step
from ..stacks import PlainLayer, Stack, hidden_states

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


def test_nothing_is_collected_until_the_trace_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    traces: list[int] = []
    collections: list[str] = []
    trace_call: Callable[..., Any] = cache.trace_call

    def counted(*args: Any, **kwargs: Any) -> Any:
        gc.callbacks.append(note)
        try:
            return trace_call(*args, **kwargs)
        finally:
            gc.callbacks.remove(note)
            traces.append(1)

    def note(phase: str, _: dict[str, int]) -> None:
        collections.append(phase)

    monkeypatch.setattr(cache, "trace_call", counted)
    model = build("qwen3")
    clear_traces()
    gc.collect()
    handle = hf_ckpt.apply(model, "full")
    step(model)
    handle.restore()
    assert traces
    assert len(collections) <= 2 * len(traces)  # what is due when a trace begins or ends
    assert gc.isenabled()


def test_a_trace_keeps_no_model_alive() -> None:
    def weights() -> list[weakref.ref[Any]]:
        model = build("qwen3")
        hf_ckpt.apply(model, "full")
        step(model)
        return [weakref.ref(parameter) for parameter in model.parameters()]

    clear_traces()
    left = weights()
    gc.collect()
    assert [reference for reference in left if reference() is not None] == []


class NeedsNumbers(PlainLayer):
    """It can be traced for one shape alone."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        if not isinstance(hidden.shape[1], int):
            raise TypeError("a length is a number")
        return super().forward(hidden)


def test_a_trace_that_fails_keeps_nothing_of_the_forward_alive() -> None:
    def forward(stack: Stack) -> weakref.ref[Any]:
        held_by_the_forward = hidden_states()
        stack(held_by_the_forward).sum().backward()
        return weakref.ref(held_by_the_forward)

    clear_traces()
    stack = Stack(NeedsNumbers)
    engines = stack.checkpoint()
    gc.disable()
    try:
        left = forward(stack)
        assert left() is None
    finally:
        gc.enable()
    assert {engine.report().mode for engine in engines} == {Mode.PER_SHAPE}


@pytest.mark.parametrize("is_on", [True, False])
def test_it_is_as_it_was_after_an_error(is_on: bool) -> None:
    def fail() -> None:
        with collections_after():
            assert not gc.isenabled()
            raise ValueError

    (gc.enable if is_on else gc.disable)()
    try:
        with pytest.raises(ValueError, match=r"^$"):
            fail()
        assert gc.isenabled() is is_on
    finally:
        gc.enable()
