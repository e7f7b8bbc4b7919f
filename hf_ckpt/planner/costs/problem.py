"""What the planner decides over, and what a decision costs: plain data and exact arithmetic, no torch.

The memory model, in forward order ``0..L-1``. Layer ``i`` *holds* ``m_i`` bytes from its forward to its backward: the
saved activations it keeps, plus its own input when autograd saves it or a rebuild reads it. With ``S_i`` the sum of
``m_0`` to ``m_i``:

* when the loss is computed, ``S_{L-1}`` plus what the loss head needs is alive;
* in the backward of layer ``i`` the layers behind it are gone, layer ``i`` has everything it saved (kept, rebuilt or
  brought back) plus its working memory and its own gradients so far, and the gradients of the layers behind it exist:
  ``S_{i-1} + transient_i + gradients_{> i}``;
* when all is done, every parameter gradient exists, those of the embeddings too.

So the last layers are special: what the last one keeps is alive while it is replayed anyway, and costs nothing unless
the loss head is what peaks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING

from ...ledger import Buffer, LayerLedger, Source, Verb

if TYPE_CHECKING:
    from collections.abc import Sequence


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

    @cached_property
    def own_input(self) -> Buffer | None:
        """The hidden states that come in. Other inputs (masks, rotary tables) are shared by all layers."""
        return next((b for b in self.ledger.buffers if b.source is Source.INPUT), None)

    @cached_property
    def everything(self) -> frozenset[int]:
        """Indices of all buffers that a plan decides about."""
        return frozenset(b.index for b in self.ledger.saved_activations())

    def reads_input(self, ops: frozenset[int]) -> bool:
        """Whether running ``ops`` again needs the layer's own input."""
        own = self.own_input
        return own is not None and any(own.index in self.ledger.ops[o].inputs for o in ops)


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """The verb of every saved activation of one layer: what is in neither set is rebuilt. Buffer indices."""

    kept: frozenset[int]
    offloaded: frozenset[int] = frozenset()

    def verb(self, buffer: Buffer) -> Verb:
        """What happens to this saved activation."""
        if buffer.index in self.kept:
            return Verb.KEEP
        if buffer.index in self.offloaded:
            return Verb.OFFLOAD
        return Verb.REDRAW if buffer.source is Source.RANDOM else Verb.REBUILD


@dataclass(frozen=True, slots=True)
class HeadOption:
    """One way to run the loss head: in ``chunks`` (1: as the model does it), at ``nbytes`` peak, ``seconds`` added."""

    chunks: int
    nbytes: int
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class HostLink:
    """The way to host memory: bytes per second in each direction."""

    bytes_per_second: float


@dataclass(frozen=True)
class Problem:
    """A stack of layers (``order[i]`` is the kind of layer ``i``) with its loss head.

    ``shared`` bytes are alive all along (masks, rotary tables); ``head_gradients`` are the gradients that exist before
    the first layer's backward starts, ``late_gradients`` those that come after the last one's (input embeddings);
    ``overhead`` is the added seconds of a layer that replays at all. ``link`` is
    None where offloading is not possible or not wanted. ``forwards`` says how many forwards of this kind are alive when
    backward begins (a smaller one counts for a part): the others hold what this one holds, their heads too.
    """

    kinds: tuple[Kind, ...]
    order: tuple[int, ...]
    heads: tuple[HeadOption, ...] = (HeadOption(1, 0),)
    shared: int = 0
    head_gradients: int = 0
    late_gradients: int = 0
    overhead: float = 0.0
    link: HostLink | None = None
    forwards: float = 1.0

    def kind(self, layer: int) -> Kind:
        """The kind of layer ``layer``."""
        return self.kinds[self.order[layer]]

    @cached_property
    def backward_bytes(self) -> tuple[int, ...]:
        """For every layer: the bytes alive in its backward besides what the layers before it hold."""
        alive, total = [], self.head_gradients
        for kind in (self.kinds[k] for k in reversed(self.order)):
            alive.append(kind.transient + total)
            total += kind.gradients
        return tuple(reversed(alive))

    @cached_property
    def all_gradients(self) -> int:
        """The bytes of gradients that a step makes."""
        return self.head_gradients + self.late_gradients + sum(self.kinds[k].gradients for k in self.order)


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds in bytes; None is no bound.

    ``peak`` bounds the bytes alive at any time (activations, loss head, gradients that come up); ``held`` only what the
    layers hold when the forward ends. ``beside`` is what the model and its optimizer take of the same budget; where
    they take all of it, ``peak`` is 0 or less.
    """

    peak: int | None = None
    held: int | None = None
    beside: int = 0


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a plan costs by the model: bytes held by the layers after forward, bytes at the peak, added seconds."""

    held: int
    peak: int
    seconds: float

    def within(self, limits: Limits) -> bool:
        """Whether both bounds are met."""
        return (limits.peak is None or self.peak <= limits.peak) and (limits.held is None or self.held <= limits.held)


def layer_held(kind: Kind, plan: LayerPlan) -> int:
    """Bytes that a layer under this plan holds between its forward and its backward."""
    buffers = kind.ledger.buffers
    held = sum(buffers[b].nbytes for b in plan.kept)
    own = kind.own_input
    if own is not None and (own.saved or kind.reads_input(rebuilt_ops(kind, plan))):
        held += own.nbytes
    return held


def rebuilt_ops(kind: Kind, plan: LayerPlan) -> frozenset[int]:
    """The ops that run again under this plan. Raises ValueError if one of them must not."""
    return kind.ledger.rebuild_ops(plan.kept | plan.offloaded)


def replay_seconds(problem: Problem, kind: Kind, plan: LayerPlan) -> float:
    """Added seconds of one layer for running ops again (transfers are not in it)."""
    ops = rebuilt_ops(kind, plan)
    return sum(kind.seconds[o] for o in ops) + (problem.overhead if ops else 0.0)


def offloaded_bytes(kind: Kind, plan: LayerPlan) -> int:
    """Bytes that travel to host memory and back for one layer."""
    return sum(kind.ledger.buffers[b].nbytes for b in plan.offloaded)


def transfer_seconds(problem: Problem, plans: Sequence[LayerPlan]) -> float:
    """Added seconds of the offloads: what does not hide behind the forward, and behind the backward."""
    if problem.link is None:
        return 0.0
    kinds = [problem.kinds[k] for k in problem.order]
    moved = sum(offloaded_bytes(k, p) for k, p in zip(kinds, plans, strict=True)) / problem.link.bytes_per_second
    return max(0.0, moved - sum(k.forward for k in kinds)) + max(0.0, moved - sum(k.backward for k in kinds))


def prefetched_bytes(problem: Problem, plans: Sequence[LayerPlan]) -> int:
    """Room for the layer that comes back one layer ahead: per kind, all buffers that any of its layers offloads."""
    used: dict[int, set[int]] = {}
    for k, plan in zip(problem.order, plans, strict=True):
        used.setdefault(k, set()).update(plan.offloaded)
    return max((sum(problem.kinds[k].ledger.buffers[b].nbytes for b in bs) for k, bs in used.items()), default=0)


def assess(problem: Problem, plans: Sequence[LayerPlan], head: HeadOption) -> Assessment:
    """The model's exact prediction for these plans, one a layer in forward order."""
    costs = {
        (k, plan): (layer_held(problem.kinds[k], plan), replay_seconds(problem, problem.kinds[k], plan))
        for k, plan in set(zip(problem.order, plans, strict=True))
    }
    room = problem.shared + prefetched_bytes(problem, plans)
    held, peak, seconds = 0, problem.all_gradients, transfer_seconds(problem, plans) + head.seconds
    for key, backward in zip(zip(problem.order, plans, strict=True), problem.backward_bytes, strict=True):
        peak = max(peak, held + backward)
        held += costs[key][0]
        seconds += costs[key][1]
    others = ceil((problem.forwards - 1) * (held + head.nbytes))
    return Assessment(held, room + others + max(peak, held + head.nbytes), seconds)
