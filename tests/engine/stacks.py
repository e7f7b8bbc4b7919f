"""Small stacks of custom decoder layers, each with one habit that a trace must not get wrong."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from hf_ckpt.engine import TracedReplay
from hf_ckpt.policy.decision import RecomputeLayer


class PlainLayer(GradientCheckpointingLayer):
    """A residual MLP."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(torch.tanh(self.up(hidden)))


class WritesItsInput(PlainLayer):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden += 1.0
        return self.down(self.up(hidden))


class WritesABuffer(PlainLayer):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return super().forward(hidden)


class WritesItsOwnTensors(PlainLayer):
    """Legal: every write is to a tensor made here, before autograd saves it."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        gate = torch.zeros_like(hidden)
        gate[..., ::2] += 0.5
        gate.add_(0.25)
        scaled = self.up(hidden * gate)
        scaled.mul_(2.0)
        return hidden + self.down(torch.sigmoid(scaled))


class ChoosesByData(PlainLayer):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        picked = hidden[hidden[..., 0] > 0]
        return hidden + self.down(torch.tanh(self.up(picked))).mean()


class ReadsAnItem(PlainLayer):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(torch.tanh(self.up(hidden))) * hidden.abs().max().item()


class _Opaque(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return torch.from_numpy(x.detach().numpy() * 3.0)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return grad * 3.0 + 0.0 * x


class CallsAForeignKernel(PlainLayer):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(_Opaque.apply(torch.tanh(self.up(hidden))))


class _Transparent(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(x @ weight.t())
        ctx.save_for_backward(x, weight, y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight, _ = ctx.saved_tensors
        y = ctx.saved_tensors[2]
        inner = grad * (1 - y * y)
        return inner @ weight, inner.flatten(0, -2).t() @ x.flatten(0, -2)


class CallsAnAutogradFunction(PlainLayer):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(_Transparent.apply(hidden, self.up.weight))


_COUNTER = itertools.count()


class DependsOnTheWorld(PlainLayer):
    """Computes with a number that no signature shows."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(torch.tanh(self.up(hidden)) * float(next(_COUNTER) + 1))


class Counts(PlainLayer):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(hidden)


class LooksAtItsLength(PlainLayer):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(torch.tanh(self.up(hidden))) * int(hidden.shape[1])


class CutsAParameter(PlainLayer):
    """As GPT-Neo cuts its causal mask, a buffer, to the length."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.linspace(-1, 1, 64 * 16).view(64, 16))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + super().forward(hidden) * self.gate[: hidden.shape[1]]


class LooksForSymbols(PlainLayer):
    """Computes something else where its sizes are symbols, as a kernel chosen by a symbolic size does."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        activation = torch.tanh if type(hidden.shape[1]) is int else torch.sigmoid
        return hidden + self.down(activation(self.up(hidden)))


class DropsOutFused(PlainLayer):
    """As CUDA does it: one op draws the mask and applies it."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(torch.native_dropout(torch.tanh(self.up(hidden)), 0.3, True)[0])


class DrawsTwiceAlike(PlainLayer):
    """Two draws that look the same and are not."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        inner = torch.tanh(self.up(hidden))
        return hidden + self.down(inner * torch.rand_like(inner) * torch.rand_like(inner))


class DrawsWithoutSaving(PlainLayer):
    """Between its first two draws autograd saves nothing, and of the first it never saves anything."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        noise = torch.randn_like(hidden)
        jitter = torch.empty_like(hidden).uniform_(0.9, 1.1)
        return noise + jitter * hidden + self.down(torch.tanh(self.up(hidden * torch.rand_like(hidden))))


class DrawsEverything(PlainLayer):
    """Dropout in its forms, jitter, Gumbel noise, and numbers that are drawn by their weights."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        inner = nn.functional.dropout(torch.tanh(self.up(hidden)), 0.2)
        gumbel = -torch.empty_like(inner).exponential_().log()
        inner = inner * torch.softmax(inner + gumbel, -1) * torch.bernoulli(torch.full_like(inner, 0.7))
        noise = torch.normal(0.0, 1.0, hidden.shape) + torch.randn(hidden.shape) * torch.randint(0, 3, hidden.shape)
        attended = nn.functional.scaled_dot_product_attention(hidden, hidden, hidden, dropout_p=0.1)
        return hidden + attended + self.down(inner) * noise


class DrawsFromItsOwn(PlainLayer):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        inner = torch.tanh(self.up(hidden))
        return hidden + self.down(inner * torch.empty_like(inner).uniform_(generator=self.generator))


class Stack(nn.Module):
    """Layers in a row."""

    def __init__(self, kind: type[PlainLayer] = PlainLayer, count: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(kind() for _ in range(count))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden

    def checkpoint(self, plan: Any = None) -> list[TracedReplay]:
        engines = []
        for index, layer in enumerate(self.layers):
            engine = TracedReplay(f"layers.{index}", plan or RecomputeLayer())
            layer.gradient_checkpointing = True
            layer._gradient_checkpointing_func = engine
            engines.append(engine)
        return engines


def hidden_states(length: int = 5, *, needs_grad: bool = True, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, length, 16, generator=generator).requires_grad_(needs_grad)


def gradients(stack: nn.Module, length: int = 5) -> list[torch.Tensor]:
    stack.zero_grad()
    x = hidden_states(length)
    stack(x.clone()).pow(2).sum().backward()
    return [x.grad, *(p.grad.clone() for p in stack.parameters() if p.grad is not None)]
