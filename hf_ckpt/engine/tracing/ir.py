"""The record of one layer call: values, the buffers behind them, ops in program order, packs.

A *buffer* is one version of one storage: an op that writes in place makes the next version. A *pack* is one tensor that
autograd saved, known by its position.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import FunctionType
from typing import TYPE_CHECKING, Any

from .symbols import evaluate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from ...ledger import LayerLedger
    from .symbols import Guards, Size


#: The place of a forward before its first pack.
ENTRY = -1


@dataclass(frozen=True, slots=True)
class Ref:
    """An op argument: a tensor of the trace, and the version of its storage that the op read."""

    value: int
    buffer: int


@dataclass(frozen=True, slots=True)
class SizeRef:
    """An op argument: a symbolic number."""

    size: Size


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a storage began: ``kind`` is "input", "parameter", "constant" or "op"; ``index`` counts within the kind."""

    kind: str
    index: int


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor object of the trace, a window (shape, stride, offset in elements) into its storage."""

    index: int
    buffer: int
    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    offset: Size
    dtype: torch.dtype
    producer: int | None

    def same_window(self, other: Value) -> bool:
        """Whether both see the same elements in the same way."""
        return (self.shape, self.stride, self.offset, self.dtype) == (
            other.shape, other.stride, other.offset, other.dtype,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Buffer:
    """One version of one storage. ``base`` is the first value on the storage."""

    index: int
    storage: int
    origin: Origin
    producer: int | None
    base: int
    nbytes: Size
    device: torch.device


@dataclass(frozen=True, slots=True)
class Draw:
    """Where an op that draws random numbers stands among the draws of its device's generator.

    ``previous`` is the op that drew before it (None: it is the layer's first). ``anchor`` is a place in the forward
    that lies between the two, where the random state is the one this op meets: the position of a pack, :data:`ENTRY`
    for the layer's beginning, None where autograd saves nothing in between.
    """

    device: torch.device
    previous: int | None
    anchor: int | None

    @property
    def after(self) -> tuple[int, ...]:
        """The draw that must be repeated before this one, because no random state can be taken between them."""
        return () if self.anchor is not None or self.previous is None else (self.previous,)


@dataclass(frozen=True, slots=True)
class TracedOp:
    """One op. ``args`` and ``kwargs`` hold :class:`Ref` and :class:`SizeRef` in place of tensors and symbols.

    ``outputs`` are value indices (None for an output that is no tensor, or that nobody may use); ``single`` tells a
    bare tensor from a tuple. ``obstacle`` says why the op must not run twice, "" if it may; ``draw`` is set for an op
    that draws random numbers, which may run again from the random state it met. ``gradients`` counts the tensors it
    reads that require one.
    """

    index: int
    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[int | None, ...]
    single: bool
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    module: str
    is_view: bool
    obstacle: str
    flops: Size
    draw: Draw | None = None
    gradients: int = 2

    @property
    def name(self) -> str:
        """The op's name as torch spells it: ``aten.mm.default``; the class of an autograd Function."""
        return f"hf_ckpt.{self.target.__name__}" if isinstance(self.target, FunctionType) else str(self.target)


@dataclass(frozen=True, slots=True)
class Pack:
    """One saved tensor: the value it equals and the buffer version it was saved at."""

    position: int
    value: int
    buffer: int


@dataclass(frozen=True, slots=True)
class Saved:
    """What a layer saves after its check, and whether it shares memory with what was saved just before."""

    shape: tuple[Size, ...]
    dtype: torch.dtype
    shares: bool


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Trace:
    """Everything recorded of one call of one layer class, valid wherever ``guards`` hold."""

    class_name: str
    symbolic: bool
    guards: Guards
    values: tuple[Value, ...]
    buffers: tuple[Buffer, ...]
    ops: tuple[TracedOp, ...]
    packs: tuple[Pack, ...]
    constants: tuple[torch.Tensor, ...]
    slots: tuple[str, ...]
    #: What the layer may save after these packs: nothing, or one of these (see checks.py).
    endings: tuple[tuple[Saved, ...], ...] = ()
    #: What was compiled from this trace, by plan and sublayers (see recipe.py).
    recipes: dict[Any, Any] = field(default_factory=dict)
    #: The ledgers that were asked for, by the values of the symbols (see ledgers.py).
    ledgers: dict[tuple[int, ...], LayerLedger] = field(default_factory=dict)

    @property
    def shares(self) -> tuple[bool | None, ...]:
        """Whether a pack shares memory with the pack before; None where that is not for the trace to say.

        A trace takes inputs and parameters to be apart, but FSDP's parameters may be views of one tensor.
        """
        buffers = [self.buffers[pack.buffer] for pack in self.packs]
        made = [buffer.origin.kind == "op" for buffer in buffers]
        pairs = zip(range(len(buffers)), range(1, len(buffers)), strict=False)
        later = (buffers[a].storage == buffers[b].storage if made[a] and made[b] else None for a, b in pairs)
        return (None, *later)[: len(buffers)]

    def nbytes(self, buffer: int, values: Mapping[str, int]) -> int:
        """Bytes of a buffer at these symbol values."""
        return evaluate(self.buffers[buffer].nbytes, values)

    def maker_of(self, position: int) -> str:
        """The op that made the pack at ``position``, and where, for a message."""
        producer = self.buffers[self.packs[position].buffer].producer
        if producer is None:
            return f"saved tensor {position}"
        op = self.ops[producer]
        return f"{op.name} in {op.module or 'the layer'}"
