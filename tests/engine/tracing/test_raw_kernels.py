"""A kernel that is launched by address gets real memory only: a fake tensor has none, and its address would be 0."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.autograd import Function

from hf_ckpt.anatomy import read_anatomy
from hf_ckpt.engine import clear_traces
from hf_ckpt.measuring.dry_run import dry_ledgers

from ...models import batch, build
from ..foreign_functions import GatedMlp
from ..stacks import PlainLayer, Stack, gradients

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: The addresses of every launch.
LAUNCHES: list[tuple[int, int]] = []


@pytest.fixture(autouse=True)
def _no_launches() -> Iterator[None]:
    clear_traces()
    LAUNCHES.clear()
    yield
    clear_traces()


def copied(x: torch.Tensor) -> torch.Tensor:
    """A launch: it takes addresses, and knows nothing of tensors."""
    out = torch.empty_like(x)
    addresses = (out.data_ptr(), x.data_ptr())
    LAUNCHES.append(addresses)
    if all(addresses):  # a test that fails is better than a process that ends
        ctypes.memmove(*addresses, x.nbytes)
    return out


class Tripled(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return copied(x) * 3

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return copied(gradient.contiguous()) * 3


class SavesTheResult(Function):
    """What it is launched on was made in its own forward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        scale = torch.full((x.shape[-1],), 3.0)
        saved = copied(scale)
        ctx.save_for_backward(saved)
        return x * saved

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (saved,) = ctx.saved_tensors
        return gradient * saved


@torch.library.custom_op("hf_ckpt_tests::copied_by_address", mutates_args=())
def _custom_op(x: torch.Tensor) -> torch.Tensor:
    return copied(x)


_custom_op.register_autograd(lambda ctx, gradient: gradient)

#: An extension that registers one function for all devices, as C++ extensions without a backward of their own do.
_EXTENSION = torch.library.Library("hf_ckpt_tests_extension", "DEF")
_EXTENSION.define("copied(Tensor x) -> Tensor")
_EXTENSION.impl("copied", copied, "CompositeImplicitAutograd")

FORMS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "a Function": (Tripled.apply, "traced per shape"),
    "a Function that saves": (SavesTheResult.apply, "traced per shape"),
    "a custom op": (_custom_op, "traced per shape"),
    "an op for all devices": (
        lambda x: x * torch.ops.hf_ckpt_tests_extension.copied(x.detach()),
        "whole-layer replay",
    ),
    "no function of torch": (lambda x: x * copied(x.detach()), "whole-layer replay"),
}


@pytest.mark.parametrize("form", FORMS)
def test_it_gets_real_memory(form: str) -> None:
    launch, mode = FORMS[form]

    class Layer(PlainLayer):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return super().forward(launch(hidden))

    stack, reference = Stack(Layer), Stack(Layer)
    engines = stack.checkpoint()
    for length in (5, 5, 7):
        for one, other in zip(gradients(stack, length), gradients(reference, length), strict=True):
            assert torch.equal(one, other)
    assert LAUNCHES
    assert all(map(all, LAUNCHES))
    assert {str(engine.report().mode) for engine in engines} == {mode}, engines[0].report().reason


def test_a_forecast_launches_nothing() -> None:
    with torch.device("meta"):
        model = build("llama")
    model.model.layers[0].mlp = GatedMlp(model.model.layers[0].mlp, lambda gate, up: copied(gate.detach()) * up)
    ledgers = dry_ledgers(model, read_anatomy(model), batch(2, 24).to("meta"), torch.device("cpu"))
    assert LAUNCHES == []
    assert ledgers[0] is None
    assert all(ledgers[1:])
