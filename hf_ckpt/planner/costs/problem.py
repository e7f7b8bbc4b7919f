"""What the planner decides over, as plain data: kinds of layers, the loss head, bounds. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...ledger import Buffer, LayerLedger


@dataclass(frozen=True)
class Kind:
    """Layers that are planned alike: same ledger, same costs.

    ``seconds`` is the time of each op of the ledger, by index; ``transient`` the bytes alive for one such layer at the
    worst moment of its backward, its saved tensors and its parameters' gradients so far included; ``gradients`` the
    bytes of parameter gradients that its backward allocates (0 when they exist beforehand); ``forward`` and
    ``backward`` its seconds without replay, which is what transfers can hide behind.
    """

    ledger: LayerLedger
    seconds: tuple[float, ...]
    transient: int
    gradients: int = 0
    forward: float = 0.0
    backward: float = 0.0

    @property
    def is_counted(self) -> bool:
        """Whether the layer is not traced: its ops are pieces, each of which takes what its own replay takes."""
        return self.ledger.workspace is not None

    @cached_property
    def own_input(self) -> Buffer | None:
        """The hidden states that come in."""
        return self.ledger.own_input

    @cached_property
    def further_inputs(self) -> int:
        """Bytes of what only this layer is given beside them. All else (masks, rotary tables) the layers share."""
        return self.ledger.own_input_bytes()

    @cached_property
    def everything(self) -> frozenset[int]:
        """Indices of all buffers that a plan decides about."""
        return frozenset(b.index for b in self.ledger.saved_activations())

    def reads_input(self, ops: frozenset[int]) -> bool:
        """Whether running ``ops`` again needs the layer's own input."""
        own = self.own_input
        return own is not None and any(own.index in self.ledger.ops[o].inputs for o in ops)


@dataclass(frozen=True, slots=True)
class HeadOption:
    """One way to run the loss head: in ``chunks`` (1: as the model does it), at ``nbytes`` peak, ``seconds`` added.

    ``waits`` are the bytes of them that it holds until backward; None: all of them.
    """

    chunks: int
    nbytes: int
    seconds: float = 0.0
    waits: int | None = None

    @property
    def held(self) -> int:
        """Bytes that it holds until backward."""
        return self.nbytes if self.waits is None else self.waits


@dataclass(frozen=True, slots=True)
class HostLink:
    """The way to host memory: bytes per second in each direction, and the bytes that one forward may have there.

    ``nbytes`` is None where nothing says how much memory the host has.
    """

    bytes_per_second: float
    nbytes: int | None = None


@dataclass(frozen=True, slots=True)
class Gradients:
    """Bytes of gradients: those that exist before the first layer's backward, of each layer, those that come last."""

    head: int
    layers: tuple[int, ...]
    late: int


@dataclass(frozen=True)
class Problem:
    """A stack of layers (``order[i]`` is the kind of layer ``i``) with its loss head.

    ``shared`` bytes are alive all along (masks, rotary tables, what an encoder hands to all decoder layers);
    ``head_gradients`` are the gradients that exist before the first layer's backward starts, ``late_gradients`` those
    that come after the last one's (input embeddings); ``gathering`` is what every layer's backward takes to gather
    weights and to reduce gradients, where they are sharded; ``freed`` are the bytes that each layer's backward gives
    back when it ends, () where none does (weights that stayed whole until then); ``overhead`` is the added seconds of a
    traced one that replays. ``link`` is None where offloading is not possible or not wanted. ``forwards`` says how many
    forwards of this kind are alive when backward begins (a smaller one counts for a part): the others hold what this
    one holds, their heads and ``shared`` bytes too. Each of them holds ``outside`` bytes beside the layers and the head
    (embeddings, final norms). ``chunk_seconds`` are the seconds of a step in which the backwards of parts in chunks
    compute them again, whatever the plan. ``given`` are the storages, by key, of the tensors that each layer is given;
    () where unknown. ``waiting`` are the gradients of a backward through several forwards: where there are gradients
    beforehand, autograd holds each new one until the last forward's part of it is there (:func:`~.assemble.waited_for`
    counts them). None where they are counted already, or nobody knows.
    """

    kinds: tuple[Kind, ...]
    order: tuple[int, ...]
    heads: tuple[HeadOption, ...] = (HeadOption(1, 0),)
    shared: int = 0
    head_gradients: int = 0
    late_gradients: int = 0
    gathering: int = 0
    freed: tuple[int, ...] = ()
    overhead: float = 0.0
    link: HostLink | None = None
    forwards: float = 1.0
    outside: int = 0
    chunk_seconds: float = 0.0
    given: tuple[tuple[int, ...], ...] = ()
    waiting: Gradients | None = None

    def kind(self, layer: int) -> Kind:
        """The kind of layer ``layer``."""
        return self.kinds[self.order[layer]]

    @property
    def always(self) -> int:
        """The bytes that are alive all along, whatever the plan."""
        return ceil(round(self.forwards * (self.shared + self.outside), 3))

    @cached_property
    def backward_bytes(self) -> tuple[int, ...]:
        """For every layer: the bytes alive in its backward besides what the layers before it hold."""
        alive, total = [], self.head_gradients
        for layer in reversed(range(len(self.order))):
            kind = self.kind(layer)
            alive.append(kind.transient + self.gathering + total)
            total += kind.gradients - (self.freed[layer] if self.freed else 0)
        return tuple(reversed(alive))

    @cached_property
    def all_gradients(self) -> int:
        """The bytes of gradients that a step makes, less what backwards give back."""
        layers = sum(self.kinds[k].gradients for k in self.order) - sum(self.freed)
        return self.head_gradients + self.late_gradients + layers


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds in bytes; None is no bound.

    ``peak`` bounds the bytes alive at any time (activations, loss head, gradients that come up); ``held`` only what the
    layers hold when the forward ends. ``beside`` is what the model and its optimizer take of the same budget; where
    they take all of it, ``peak`` is 0 or less. ``room`` is what the device has left for the peak where the budget does
    not bound it: plans keep to it where they can.
    """

    peak: int | None = None
    held: int | None = None
    beside: int = 0
    room: int | None = None
