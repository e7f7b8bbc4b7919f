"""The ledger of one layer call: every buffer autograd saves, what it costs to keep and what it takes to rebuild.

Plain data, no torch. The engine writes it from a trace, the planner solves over it, ``explain`` prints it. A *buffer*
is one storage: saved tensors that are views of each other share it, and it counts once. Sizes are bytes at the traced
shapes; FLOPs count a multiply-add as two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Source(StrEnum):
    """Where a buffer comes from, which decides what may be done with it."""

    #: An input of the layer call: alive anyway (or kept once a layer), always available to a rebuild.
    INPUT = "input"
    #: A parameter or module buffer: held by the model, fetched again at rebuild, never counted.
    PARAMETER = "parameter"
    #: Made by a deterministic op: may be kept, rebuilt or offloaded.
    ACTIVATION = "activation"
    #: Made from random numbers (a dropout mask): may be kept, offloaded or drawn again from the same random state.
    RANDOM = "random"
    #: Made by an op that must not run twice: kept or offloaded.
    ONCE = "once"

    @property
    def is_made(self) -> bool:
        """Whether an op of the layer makes it, so that a plan decides about it."""
        return self in (Source.ACTIVATION, Source.RANDOM, Source.ONCE)


@dataclass(frozen=True, slots=True)
class Buffer:
    """One storage of the traced layer call. ``saved`` lists the pack positions that alias it (may be empty)."""

    index: int
    nbytes: int
    source: Source
    producer: int | None
    saved: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str
    #: An input beside the layer's hidden states that no other layer is given.
    own: bool = False
    #: An earlier buffer that an equal op makes: a rebuild of both makes one (adapters cast what q, k and v read each).
    twin: int | None = None


@dataclass(frozen=True, slots=True)
class Op:
    """One op of the traced forward. ``inputs`` and ``outputs`` are buffer indices; ``traffic`` is bytes read + written.

    ``module`` is the name of the module that ran it, relative to the layer (``"self_attn.q_proj"``, ``""`` for the
    layer itself). ``rebuildable`` is False for ops that must not run twice (collectives, mutations). ``after`` are the
    random draws that must be repeated before this one is, so that it meets the random state it met in the forward.
    """

    index: int
    name: str
    module: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    flops: int
    traffic: int
    rebuildable: bool
    #: Seconds it was measured to take; None: by its FLOPs and traffic. Layers that differ in nothing else are equal.
    seconds: float | None = field(default=None, compare=False)
    after: tuple[int, ...] = ()
    #: How many of its tensors get a gradient: one product each in the backward of a matrix product.
    gradients: int = 2


@dataclass(frozen=True, slots=True)
class ChunkedPart:
    """A module of a layer that runs in ``chunks`` of the tokens, forward and again in backward.

    ``module`` is its name relative to the layer, ``sums`` bytes that its backward takes to sum the gradients of its
    weights, ``token`` about the bytes that the backward of a chunk takes for each token, by the widths of its matrices.
    """

    module: str
    chunks: int
    sums: int = 0
    token: int = 0

    def has(self, op: Op) -> bool:
        """Whether this module, or one in it, runs the op."""
        return op.module == self.module or op.module.startswith(f"{self.module}.")


@dataclass(frozen=True, slots=True)
class LayerLedger:
    """All buffers and ops of one call of one layer class, in program order."""

    class_name: str
    buffers: tuple[Buffer, ...]
    ops: tuple[Op, ...]
    #: Bytes that the backward takes beside what is saved, where the ops are too coarse to say; None where they do.
    workspace: int | None = None
    #: The modules that run in chunks: the ops are all chunks of their forwards, and they save what they are given.
    chunked: tuple[ChunkedPart, ...] = ()

    @property
    def own_input(self) -> Buffer | None:
        """The hidden states that come in: what the layer before made, and this one is the last to need."""
        return next((b for b in self.buffers if b.source is Source.INPUT), None)

    @property
    def movable_input(self) -> Buffer | None:
        """The own input, where a verb may store it: a layer that is not traced has it held by torch's checkpoint."""
        is_traced = self.ops and self.workspace is None
        return self.own_input if is_traced else None

    def saved_activations(self) -> Iterator[Buffer]:
        """The buffers a plan decides about: saved by autograd and not held by somebody else anyway."""
        return (b for b in self.buffers if b.saved and b.source.is_made)

    def own_input_bytes(self) -> int:
        """Bytes of the inputs beside the hidden states that no other layer is given, and that a backward may read."""
        read = {b for op in self.ops for b in op.inputs}
        return sum(b.nbytes for b in self.buffers if b.own and (b.saved or b.index in read))

    def rebuild_ops(self, kept: frozenset[int]) -> frozenset[int]:
        """The ops that must run again so that every saved activation outside ``kept`` exists in backward.

        ``kept`` holds buffer indices. Raises ValueError when the closure needs an op that must not run twice.
        """
        return self.ops_behind((b.index for b in self.saved_activations() if b.index not in kept), kept)

    def ops_behind(self, buffers: Iterable[int], held: frozenset[int]) -> frozenset[int]:
        """The ops that must run again to make ``buffers``, given those ``held``, the inputs and the parameters.

        Raises ValueError when one of them must not run twice.
        """
        needed: set[int] = set()
        pending = self._makers(buffers, held)
        while pending:
            op = self.ops[pending.pop()]
            if op.index in needed:
                continue
            if not op.rebuildable:
                raise ValueError(f"{op.name} of {self.class_name} must not run twice")
            needed.add(op.index)
            pending += [*self._makers(op.inputs, held), *op.after]
        return frozenset(needed)

    def _makers(self, buffers: Iterable[int], held: frozenset[int]) -> list[int]:
        producers = (self.buffers[b].producer for b in buffers if b not in held)
        return [op for op in producers if op is not None]
