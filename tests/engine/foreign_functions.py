"""Kernels that torch cannot see into, as people write them: on raw memory, in every form of an autograd Function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from collections.abc import Callable

    #: What a fused SwiGLU computes from the gate and the up projection.
    Gated = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _sigmoid(x: torch.Tensor) -> torch.Tensor:
    """A kernel: it reads memory, so it has no version for fake tensors."""
    return torch.from_numpy(1 / (1 + np.exp(-x.detach().numpy())))


def _gradients(gate: torch.Tensor, up: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    s = torch.sigmoid(gate)
    return gradient * up * (s + gate * s * (1 - s)), gradient * gate * s


class SavesInputs(Function):
    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(gate, up)
        return gate * _sigmoid(gate) * up

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return _gradients(*ctx.saved_tensors, gradient)


class WritesWhatItSaved(Function):
    """Liger's way: the gradients take the place of what was saved."""

    forward = SavesInputs.forward

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gate, up = ctx.saved_tensors
        for saved, found in zip((gate, up), _gradients(gate, up, gradient), strict=True):
            saved.copy_(found)
        return gate, up


class SavesAnIntermediate(Function):
    """What it saves is neither input nor output, and lies flat, with a view of the input."""

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        rows = gate.view(-1, gate.shape[-1])
        s = _sigmoid(rows)
        ctx.save_for_backward(rows, up, s)
        ctx.shape = gate.shape
        return (rows * s).view(gate.shape) * up

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        rows, up, s = ctx.saved_tensors
        gate, s = rows.view(ctx.shape), s.view(ctx.shape)
        first = gradient * up * (s + gate * s * (1 - s)) if ctx.needs_input_grad[0] else None
        return first, gradient * gate * s if ctx.needs_input_grad[1] else None


class SetsUpItsContext(Function):
    """The newer form, with an output that has no gradient."""

    @staticmethod
    def forward(gate: torch.Tensor, up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        s = _sigmoid(gate)
        return gate * s * up, s

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: tuple[torch.Tensor, ...]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        return _gradients(*ctx.saved_tensors, gradient)


class HasTwoOutputs(Function):
    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(gate)
        return gate * _sigmoid(gate), up.clone()

    @staticmethod
    def backward(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        (gate,) = ctx.saved_tensors
        s = torch.sigmoid(gate)
        return first * (s + gate * s * (1 - s)), second


class DrawsAMask(Function):
    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        mask = torch.bernoulli(torch.full_like(gate, 0.9))
        ctx.save_for_backward(gate, up, mask)
        return gate * _sigmoid(gate) * up * mask

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gate, up, mask = ctx.saved_tensors
        return _gradients(gate, up, gradient * mask)


class DrawsASeed(Function):
    """The mask is made again in backward, from a number on the context."""

    @staticmethod
    def mask(seed: int, like: torch.Tensor) -> torch.Tensor:
        return (torch.rand(like.shape, generator=torch.Generator().manual_seed(seed)) < 0.9).to(like.dtype)

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        ctx.seed = int(torch.randint(0, 2**31, ()).item())
        ctx.save_for_backward(gate, up)
        return gate * torch.sigmoid(gate) * up * DrawsASeed.mask(ctx.seed, gate)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gate, up = ctx.saved_tensors
        return _gradients(gate, up, gradient * DrawsASeed.mask(ctx.seed, gate))


class WritesItsInput(Function):
    """A trace cannot run it twice: it is left whole."""

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        s = _sigmoid(gate)
        ctx.save_for_backward(up, s + gate * s * (1 - s), gate * s)
        gate.copy_(gate * s * up)
        ctx.mark_dirty(gate)
        return gate

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        up, slope, value = ctx.saved_tensors
        return gradient * up * slope, gradient * value


class FusedNorm(Function):
    """RMSNorm that saves the reciprocal root."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        scale = torch.from_numpy(1 / np.sqrt((x.detach().numpy() ** 2).mean(-1, keepdims=True) + epsilon))
        ctx.save_for_backward(x, weight, scale)
        return x * scale * weight

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        x, weight, scale = ctx.saved_tensors
        normed, inner = x * scale, gradient * weight
        first = scale * (inner - normed * (inner * normed).mean(-1, keepdim=True))
        return first, (gradient * normed).sum((0, 1)), None


@torch.library.custom_op("hf_ckpt_tests::swiglu", mutates_args=())
def custom_op(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """An op of a library that registered no fake kernel."""
    return gate * _sigmoid(gate) * up


def _set_up(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


custom_op.register_autograd(lambda ctx, gradient: _gradients(*ctx.saved_tensors, gradient), setup_context=_set_up)

#: Every form by its name.
FORMS: dict[str, Gated] = {
    "saves inputs": SavesInputs.apply,
    "writes what it saved": WritesWhatItSaved.apply,
    "saves an intermediate": SavesAnIntermediate.apply,
    "sets up its context": lambda gate, up: SetsUpItsContext.apply(gate, up)[0],
    "has two outputs": lambda gate, up: torch.mul(*HasTwoOutputs.apply(gate, up)),
    "draws a mask": DrawsAMask.apply,
    "draws a seed": DrawsASeed.apply,
    "custom op": custom_op,
}


class GatedMlp(nn.Module):
    """The MLP of a Llama layer with a fused SwiGLU."""

    def __init__(self, mlp: Any, gated: Gated) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = mlp.gate_proj, mlp.up_proj, mlp.down_proj
        self.gated = [gated]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down_proj(self.gated[0](self.gate_proj(x), self.up_proj(x)))
        return y


class Norm(nn.Module):
    """The norm of a Llama layer, fused."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight = norm.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = FusedNorm.apply(x, self.weight, 1e-6)
        return y


def with_fused_kernels(model: Any, gated: Gated) -> Any:
    """A Llama model with its norms and MLPs fused."""
    for layer in model.model.layers:
        layer.mlp = GatedMlp(layer.mlp, gated)
        layer.input_layernorm, layer.post_attention_layernorm = (
            Norm(layer.input_layernorm), Norm(layer.post_attention_layernorm),
        )  # fmt: skip
    return model
