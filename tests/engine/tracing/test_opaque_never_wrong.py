"""Functions that torch cannot see into, in every form that could make a trace lie: gradients are right, bit for bit."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.autograd import Function
from transformers import LlamaConfig, LlamaForCausalLM

from hf_ckpt import apply
from hf_ckpt.engine import clear_traces

from ..foreign_functions import GatedMlp

if TYPE_CHECKING:
    from collections.abc import Callable

_SIZES = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 61, "use_cache": False, "attention_dropout": 0.1,
}  # fmt: skip


def _opaque(x: torch.Tensor) -> torch.Tensor:
    """A copy that no fake tensor can make."""
    return torch.from_numpy(x.detach().numpy().copy())


class _Product(Function):
    """Saves both inputs of a product; a form changes what happens before it."""

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gate, up = ctx.saved_tensors
        return gradient * up, gradient * gate


class BranchesOnANumber(_Product):
    """Large values take another way: what is saved is the input itself, or not."""

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        if gate.abs().max().item() > 2.0:
            gate = gate.clamp(-2, 2)
        ctx.save_for_backward(gate, up)
        return _opaque(gate) * up


class ReturnsWhatItIsGiven(_Product):
    """The same way out of sight of torch: one output is the input itself, or not."""

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        if gate.numpy().max() > 2.0:
            gate = gate.clamp(-2, 2)
        ctx.save_for_backward(gate, up)
        return _opaque(gate) * up


class DropsAPath(_Product):
    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        if bool(torch.rand(()) < 0.5):
            gate = gate * 0.5
        ctx.save_for_backward(gate, up)
        return _opaque(gate) * up


class DropsAPathByPython(_Product):
    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        scale = 0.5 if np.random.rand() < 0.0 or random.random() < 0.0 else 1.0
        ctx.save_for_backward(gate * scale, up)
        return _opaque(gate * scale) * up


class SavesWhereValuesAreLarge(_Product):
    """The shape of what it saves depends on the data, and is empty at first."""

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        places = (gate.abs() > 2.0).nonzero()
        ctx.save_for_backward(gate, up, places)
        return _opaque(gate) * up

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gate, up, places = ctx.saved_tensors
        return gradient * up + len(places), gradient * gate


class WritesAndSaysNothing(_Product):
    """The write changes nothing where values are positive."""

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        gate.detach().relu_()
        ctx.save_for_backward(gate, up)
        return _opaque(gate) * up


class SavesItsOutput(Function):
    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        out = torch.tanh(_opaque(gate))
        ctx.save_for_backward(out, up)
        ctx.scale = float(gate.shape[-1])
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out, up = ctx.saved_tensors
        return gradient * (1 - out * out) * ctx.scale, torch.zeros_like(up)


class ReturnsViews(Function):
    """Two outputs in one piece of memory, and one that is a view of an input."""

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> tuple[torch.Tensor, ...]:
        both = _opaque(torch.stack((gate, up)))
        ctx.save_for_backward(both)
        return both[0], both[1].transpose(0, 1), up.transpose(0, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        (both,) = ctx.saved_tensors
        return gradients[0] * both[0], (gradients[1] + gradients[2]).transpose(0, 1) * both[1]


class HasMoreThanTensors(Function):
    """Outputs that are no tensors, gradients that are None, an input that needs none."""

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor, mode: str) -> tuple[Any, ...]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(gate if ctx.needs_input_grad[1] else None, up)
        return _opaque(gate) * up, mode, _opaque(up)

    @staticmethod
    def backward(ctx: Any, first: Any, _: Any, third: Any) -> tuple[Any, ...]:
        gate, up = ctx.saved_tensors
        assert third is None
        return first * up, first * gate, None


class Base(_Product):
    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(gate, up)
        return _opaque(gate) * up


class Inherits(Base):
    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gate, up = ctx.saved_tensors
        return gradient * up * 0.5, gradient * gate


class CallsAnother(_Product):
    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(_opaque(gate) + 1, up)
        return Base.apply(gate, up)


class IsGivenOneTwice(Function):
    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, again: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        ctx.same = gate is again
        ctx.save_for_backward(gate, up)
        return _opaque(gate if ctx.same else gate + again) * up

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        gate, up = ctx.saved_tensors
        return gradient * up, torch.zeros_like(gate), gradient * gate


def _views(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    first, second, third = ReturnsViews.apply(gate, up)
    return first * second.transpose(0, 1) * third.transpose(0, 1)


FORMS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "branches on a number": BranchesOnANumber.apply,
    "returns what it is given": ReturnsWhatItIsGiven.apply,
    "drops a path": DropsAPath.apply,
    "draws from Python": DropsAPathByPython.apply,
    "saves where values are large": SavesWhereValuesAreLarge.apply,
    "writes and says nothing": WritesAndSaysNothing.apply,
    "saves its output": lambda gate, up: SavesItsOutput.apply(gate, up) * up,
    "returns views": _views,
    "has more than tensors": lambda gate, up: HasMoreThanTensors.apply(gate, up, "sum")[0],
    "inherits": lambda gate, up: Inherits.apply(gate, up) + Base.apply(gate, up),
    "inherits, the other way round": lambda gate, up: Base.apply(gate, up) + Inherits.apply(gate, up),
    "calls another": lambda gate, up: CallsAnother.apply(gate, up) + Base.apply(up, gate),
    "is given one twice": lambda gate, up: IsGivenOneTwice.apply(gate, gate, up),
}
#: Left to whole replays: what they make depends on more than shapes.
REFUSED = {
    "branches on a number": "it decides by what its tensors hold",
    "returns what it is given": "it decides by what its tensors hold",
    "drops a path": "it decides by what its tensors hold",
    "draws from Python": "it draws from Python's or NumPy's random numbers",
    "saves where values are large": "it decides by what its tensors hold",
    "writes and says nothing": "it writes a tensor that it is given",
}


def _model(form: str) -> LlamaForCausalLM:
    clear_traces()
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**_SIZES)).train()
    for layer in model.model.layers:
        layer.mlp = GatedMlp(layer.mlp, FORMS[form])
    return model


def _step(model: LlamaForCausalLM, seed: int, scale: float) -> list[torch.Tensor]:
    model.zero_grad()
    torch.manual_seed(seed)
    with torch.no_grad():
        model.model.layers[0].mlp.gate_proj.weight.normal_(0, scale)
    ids = torch.arange(32).reshape(2, 16) % 61
    model(input_ids=ids, labels=ids).loss.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("policy", ["full", pytest.param("budget=0.5", marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_the_same_bit_for_bit(form: str, policy: str) -> None:
    model = _model(form)
    steps = [(0, 0.02), (1, 3.0), (2, 0.02), (3, 3.0)]
    expected = [_step(model, *step) for step in steps]
    handle = apply(model, policy)
    for step, gradients in zip(steps, expected, strict=True):
        found = _step(model, *step)
        assert len(found) == len(gradients)
        assert all(map(torch.equal, found, gradients)), step
    reason = handle.report().layers[0].reason
    assert REFUSED.get(form, "") in reason
    assert bool(reason) == (form in REFUSED), reason
