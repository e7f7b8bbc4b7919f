"""A part of a layer in chunks of the tokens: forward saves its input only, backward computes chunk after chunk again.

After ALST's TiledMLP (arXiv:2506.13996). An MLP, a norm or a projection treats every token alike, so chunks change
nothing but the rounding of matmuls that choose other tiles for fewer rows. The gradients of its weights are summed over
the chunks in float32, or in their own dtype where that is wider.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ..engine.random_state import random_state, random_state_kept, set_random_state
from ..engine.running.casts import with_uncached_casts
from ..errors import ModelStructureError
from ..head.deferred import autocast_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CPU = torch.device("cpu")


class Part(Protocol):
    """A part of a layer."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def term(self) -> str:
        """The term of the policy that cuts it."""

    def compute(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[..., tokens, width]`` for the same, of any width."""

    def trained(self) -> list[torch.Tensor]:
        """The leaves in it that get gradients, as they stand there now, always in the same order."""


def in_chunks(part: Part, trained: Sequence[torch.Tensor], hidden: torch.Tensor, chunks: int) -> torch.Tensor:
    """What a part makes of ``hidden``, ``[..., tokens, width]``, in so many chunks of at least as many tokens.

    ``trained`` is what ``part.trained()`` gives now. Its backward raises ModelStructureError where the part trains a
    tensor that it does not hold.
    """
    result: torch.Tensor = _InChunks.apply(part, chunks, hidden, *trained)  # type: ignore[no-untyped-call]
    return result


def tokens_in(hidden: torch.Tensor) -> int:
    """The dimension of the tokens, from the end.

    That is the last one but one: ``[batch, tokens, width]`` or ``[tokens, width]``. A norm of heads is given ``[batch,
    tokens, heads, width]`` or ``[batch, heads, tokens, width]``: there it is the longer one of the two.
    """
    return -3 if hidden.dim() > 3 and hidden.shape[-3] > hidden.shape[-2] else -2


def cut(tensor: torch.Tensor, tokens: int, start: int, length: int) -> torch.Tensor:
    """These of the tokens, which dimension ``tokens`` has, laid out as a tensor of their own.

    Some MLPs (transformers' Conv1D) take views of it.
    """
    return tensor.narrow(tokens, start, length).contiguous()


class _InChunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Part, chunks: int, hidden: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        ctx.part, ctx.chunks, ctx.surroundings = part, chunks, _Surroundings.of(hidden.device)
        ctx.tokens = tokens_in(hidden)
        # The weights too, so that autograd refuses a backward after one was written in place (saved_variable.cpp).
        ctx.save_for_backward(hidden, *weights)
        # A cast that is cached here has no graph: whoever took it from the cache would get no gradient.
        places = _places(hidden.shape[ctx.tokens], chunks)
        computed = (with_uncached_casts(part.compute, cut(hidden, ctx.tokens, *place)) for place in places)
        return torch.cat(list(computed), ctx.tokens)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, incoming: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden, *weights = ctx.saved_tensors
        gradient = torch.zeros_like(hidden) if ctx.needs_input_grad[2] else None
        sums: list[torch.Tensor | None] = [None] * len(weights)
        # FSDP2 has gathered the weights anew since the forward: those in the module now are the ones in the graph.
        sources, tokens = ctx.part.trained(), ctx.tokens
        with ctx.surroundings.again():
            for place in _places(hidden.shape[tokens], ctx.chunks):
                chunk = cut(hidden, tokens, *place).detach().requires_grad_(gradient is not None)
                asked = cut(incoming, tokens, *place)
                of_chunk, of_weights = _gradients(ctx.part, sources, chunk, asked, check=not place[0])
                if gradient is not None and of_chunk is not None:
                    gradient.narrow(tokens, *place).copy_(of_chunk)
                sums = [_plus(total, added) for total, added in zip(sums, of_weights, strict=True)]
        rounded = (None if total is None else total.to(w.dtype) for total, w in zip(sums, weights, strict=True))
        return None, None, gradient, *rounded


def _gradients(
    part: Part, weights: list[torch.Tensor], chunk: torch.Tensor, incoming: torch.Tensor, *, check: bool
) -> tuple[torch.Tensor | None, Sequence[torch.Tensor | None]]:
    """The gradients of a chunk and of the weights; None for what needs none, or has no part in the result."""
    with torch.enable_grad():
        result = part.compute(chunk)
    if not result.requires_grad:
        return None, [None] * len(weights)
    sources = [*weights, *([chunk] if chunk.requires_grad else [])]
    if check:
        _refuse_others(part, result, sources)
    found = torch.autograd.grad(result, sources, incoming, allow_unused=True)
    return (found[-1], found[:-1]) if chunk.requires_grad else (None, found)


def _refuse_others(part: Part, result: torch.Tensor, sources: list[torch.Tensor]) -> None:
    """Raise where the graph of ``result`` trains a leaf that is no source, which would silently get no gradient."""
    for leaf in _leaves(result):
        if not any(leaf is source for source in sources):
            raise ModelStructureError(
                f"`{part.name}` also trains a tensor of shape {tuple(leaf.shape)} that is no parameter of it (an "
                "adapter outside of the model, a closure, a module in a plain list), which would get no gradient: "
                f"leave {part.term} out of the policy"
            )


def _leaves(result: torch.Tensor) -> Iterator[torch.Tensor]:
    """The leaves in the graph of ``result``, each at the node that accumulates its gradient (accumulate_grad.h)."""
    nodes = [] if result.grad_fn is None else [result.grad_fn]
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        if type(node).__name__ == "AccumulateGrad":
            yield node.variable  # type: ignore[attr-defined]
        following = {before for before, _ in node.next_functions if before is not None} - seen
        seen |= following
        nodes += following


def _plus(total: torch.Tensor | None, added: torch.Tensor | None) -> torch.Tensor | None:
    if total is None or added is None:
        return total if added is None else added.to(torch.promote_types(added.dtype, torch.float32), copy=True)
    return total.add_(added)


def _places(tokens: int, chunks: int) -> Iterator[tuple[int, int]]:
    """(start, length) of each chunk; the last one takes the rest, so that a symbolic length has as many chunks."""
    size = tokens // chunks
    yield from ((index * size, size) for index in range(chunks - 1))
    yield (chunks - 1) * size, tokens - (chunks - 1) * size


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What a computation depends on beside its tensors: autocast, and the random states of the device and the CPU."""

    random: tuple[tuple[torch.device, torch.Tensor], ...]
    autocast: tuple[str, torch.dtype, bool]

    @classmethod
    def of(cls, device: torch.device) -> _Surroundings:
        """As they are now."""
        devices = dict.fromkeys((device, _CPU))
        return cls(tuple((each, random_state(each)) for each in devices), autocast_state(device))

    @contextmanager
    def again(self) -> Iterator[None]:
        """Inside they are as they were; afterwards the random states go on as if nothing had been drawn."""
        kind, dtype, enabled = self.autocast
        with random_state_kept([device for device, _ in self.random]):
            for device, state in self.random:
                set_random_state(device, state)
            with torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=False):
                yield
