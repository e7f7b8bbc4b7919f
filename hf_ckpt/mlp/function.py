"""An MLP in chunks of the tokens: forward saves its input only, backward computes chunk after chunk again.

After ALST's TiledMLP (arXiv:2506.13996). An MLP treats every token alike, so chunks change nothing but the rounding of
matmuls that choose other tiles for fewer rows. The gradients of its weights are summed over the chunks in float32.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ..engine.random_state import can_redraw, random_state, random_state_kept, set_random_state
from ..head.deferred import autocast_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Tokens stand in the last dimension but one: ``[batch, tokens, width]`` or ``[tokens, width]``.
TOKENS = -2


class Mlp(Protocol):
    """An MLP on a model."""

    def compute(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[..., tokens, width]`` for the same."""

    def trained(self) -> list[torch.Tensor]:
        """The tensors in it that get gradients, as they stand there now, always in the same order."""


def in_chunks(mlp: Mlp, hidden: torch.Tensor, chunks: int) -> torch.Tensor:
    """What an MLP makes of ``hidden``, ``[..., tokens, width]``, in so many parts of at least as many tokens."""
    result: torch.Tensor = _InChunks.apply(mlp, chunks, hidden, *mlp.trained())  # type: ignore[no-untyped-call]
    return result


class _InChunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mlp: Mlp, chunks: int, hidden: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        ctx.mlp, ctx.chunks, ctx.surroundings = mlp, chunks, _Surroundings.of(hidden.device)
        # The weights too, so that autograd refuses a backward after one was written in place (saved_variable.cpp).
        ctx.save_for_backward(hidden, *weights)
        return torch.cat([mlp.compute(_cut(hidden, part)) for part in _parts(hidden, chunks)], TOKENS)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, incoming: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden, *weights = ctx.saved_tensors
        gradient = torch.empty_like(hidden) if ctx.needs_input_grad[2] else None
        sums: list[torch.Tensor | None] = [None] * len(weights)
        with ctx.surroundings.again():
            for part in _parts(hidden, ctx.chunks):
                chunk = _cut(hidden, part).detach().requires_grad_(gradient is not None)
                of_chunk, of_weights = _gradients(ctx.mlp, chunk, _cut(incoming, part))
                if gradient is not None and of_chunk is not None:
                    gradient.narrow(TOKENS, *part).copy_(of_chunk)
                sums = [_plus(total, added) for total, added in zip(sums, of_weights, strict=True)]
        rounded = (None if total is None else total.to(w.dtype) for total, w in zip(sums, weights, strict=True))
        return None, None, gradient, *rounded


def _gradients(
    mlp: Mlp, chunk: torch.Tensor, incoming: torch.Tensor
) -> tuple[torch.Tensor | None, Sequence[torch.Tensor | None]]:
    """The gradients of a chunk, if it needs one, and of the weights; None for a weight that has no part in it."""
    with torch.enable_grad():
        result = mlp.compute(chunk)
    # FSDP2 has gathered the weights anew since the forward: those in the module now are the ones in this graph.
    sources = [*mlp.trained(), *([chunk] if chunk.requires_grad else [])]
    found = torch.autograd.grad(result, sources, incoming, allow_unused=True)
    return (found[-1], found[:-1]) if chunk.requires_grad else (None, found)


def _plus(total: torch.Tensor | None, added: torch.Tensor | None) -> torch.Tensor | None:
    if total is None or added is None:
        return total if added is None else added.to(torch.float32, copy=True)
    return total.add_(added)


def _parts(hidden: torch.Tensor, chunks: int) -> Iterator[tuple[int, int]]:
    """(start, length) of each chunk; the last one takes the rest, so that a symbolic length has as many chunks."""
    tokens = hidden.shape[TOKENS]
    size = tokens // chunks
    yield from ((index * size, size) for index in range(chunks - 1))
    yield (chunks - 1) * size, tokens - (chunks - 1) * size


def _cut(tensor: torch.Tensor, part: tuple[int, int]) -> torch.Tensor:
    """The tokens of one chunk, laid out as a tensor of its own: some MLPs (transformers' Conv1D) take views of it."""
    return tensor.narrow(TOKENS, *part).contiguous()


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What a computation depends on beside its tensors: the random state of the device, and autocast."""

    device: torch.device
    random: torch.Tensor | None
    autocast: tuple[str, torch.dtype, bool]

    @classmethod
    def of(cls, device: torch.device) -> _Surroundings:
        """As they are now."""
        return cls(device, random_state(device) if can_redraw(device) else None, autocast_state(device))

    @contextmanager
    def again(self) -> Iterator[None]:
        """Inside they are as they were; afterwards the random state goes on as if nothing had been drawn."""
        kind, dtype, enabled = self.autocast
        with random_state_kept(() if self.random is None else (self.device,)):
            if self.random is not None:
                set_random_state(self.device, self.random)
            with torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=False):
                yield
