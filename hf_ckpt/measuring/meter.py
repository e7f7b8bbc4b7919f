"""Counts, in a real step, the bytes that autograd holds after forward, and what was replayed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_iter

from ..anatomy.model import around_layers
from ..engine.untraced.saved_counter import storages
from ..planner.batches.live_forwards import LiveForwards
from .loss_outside import LossWatch
from .observed import ObservedForwards

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import nn
    from torch.utils.hooks import RemovableHandle

    from ..anatomy import Anatomy
    from ..chunks.measured import ChunksReport, MeasuredChunks
    from ..head.measured import HeadReport, MeasuredHead
    from ..regions import Region

#: Where saved tensors outside every decoder layer are counted: embeddings, final norm, head, loss.
OUTSIDE = ""


@dataclass(slots=True)
class Held:
    """Bytes of distinct storages, by the layer that saved them first; parameters never count."""

    #: By storage, as a weak reference: an address may be given to another storage, a referenced one may not.
    _saved: dict[StorageWeakRef, tuple[str, int]] = field(default_factory=dict)

    def add(self, layer: str, storage: torch.UntypedStorage) -> None:
        """Count the storage, once."""
        self._saved.setdefault(StorageWeakRef(storage), (layer, storage.nbytes()))  # type: ignore[no-untyped-call]

    def settle(self) -> None:
        """A forward is over: forget the storages that went with a graph that nobody can call backward on."""
        self._saved = {
            storage: saved
            for storage, saved in self._saved.items()
            if not storage.expired()  # type: ignore[no-untyped-call]
        }

    def __reduce__(self) -> tuple[type[Held], tuple[()]]:
        # A copy or a pickle of the model carries its hooks; a weak reference that is copied would be released twice.
        return Held, ()

    @property
    def by_layer(self) -> dict[str, int]:
        """Bytes of each layer that holds any."""
        found: dict[str, int] = {}
        for layer, nbytes in self._saved.values():
            found[layer] = found.get(layer, 0) + nbytes
        return found

    @property
    def total(self) -> int:
        """Bytes in all."""
        return sum(nbytes for _, nbytes in self._saved.values())


class Meter:
    """Measures a model between ``start`` and ``stop``.

    One saved-tensor hook spans each forward of the model, or of what holds its layers; a layer's own pre-hook and hook
    say which layer is running. Inner hooks (torch's checkpoint) see their tensors first, so what arrives here is what
    stays held. Forwards that wait for the same backward hold their bytes together; of several backwards the one with
    most counts.

    What a loss outside the model's forward saves is counted when its backward begins (see loss_outside.py).
    """

    def __init__(
        self,
        model: nn.Module,
        anatomy: Anatomy,
        regions: list[Region],
        heads: Sequence[MeasuredHead] = (),
        chunked: Sequence[MeasuredChunks] = (),
    ) -> None:
        self.model = model
        self.anatomy = anatomy
        self.regions = regions
        self.heads = heads
        self.chunked = chunked
        #: What each head did that should run in chunks; filled by ``stop``.
        self.head_reports: tuple[HeadReport, ...] = ()
        #: What the parts of layers did that should run in chunks; filled by ``stop``.
        self.chunks_reports: tuple[ChunksReport, ...] = ()
        #: Names of the layers whose forward ran with gradients.
        self.ran: set[str] = set()
        self.held = Held()
        #: The most that was held before one backward; filled by ``stop``.
        self.most = Held()
        self.forwards = 0
        self._live = LiveForwards()
        self.calls: dict[str, int] = {}
        self.replays: dict[str, int] = {}
        self._layer = OUTSIDE
        self._handles: list[RemovableHandle] = []
        self._context: torch.autograd.graph.saved_tensors_hooks | None = None
        self._weights: set[int] = set()
        self._losses = LossWatch(self._count_outside)
        self._forwards = ObservedForwards(around_layers(model, anatomy), self._enter_model, self._leave_model)

    def start(self) -> None:
        """Register the hooks and reset every region's counters."""
        self._forwards.start()
        for layer in self.anatomy.layers:
            self._handles.append(layer.module.register_forward_pre_hook(_SetLayer(self, layer.info.name), prepend=True))
            self._handles.append(layer.module.register_forward_hook(_SetLayer(self, OUTSIDE), always_call=True))
        for region in self.regions:
            region.start_counting()
            region.observer = self
        self._losses.start()

    def stop(self) -> None:
        """Remove the hooks and read the counters; calling it again does nothing."""
        if not self._handles:
            return
        self._close()
        self._forwards.stop()
        self._losses.stop()
        self._begin_group()
        for handle in self._handles:
            handle.remove()
        self._handles = []
        for region in self.regions:
            region.observer = None
            region.stop_counting()
            for name in region.layers:
                self.calls[name] = self.calls.get(name, 0) + region.calls
                self.replays[name] = self.replays.get(name, 0) + region.replays
        # Where transformers runs a layer's hooks inside its checkpoint, only the region saw the layer.
        self.ran |= {name for name, calls in self.calls.items() if calls > 0}
        self.head_reports = tuple(report for head in self.heads if (report := head.report()) is not None)
        self.chunks_reports = tuple(parts.report() for parts in self.chunked)

    def hold(self, layer: str, values: Iterable[Any]) -> None:
        """A region keeps these alive by plain reference."""
        for value in tree_iter(list(values)):
            if isinstance(value, torch.Tensor):
                self._count(layer, value)

    def enter_layer(self, name: str) -> None:
        """Saved tensors belong to this layer from now on."""
        self._layer = name
        if name != OUTSIDE and torch.is_grad_enabled():
            self.ran.add(name)

    def _enter_model(self) -> None:
        self._close()
        if not (self.model.training and torch.is_grad_enabled()):
            return
        if not self._live.waiting():
            self._begin_group()
        self.forwards += 1
        self._weights = {
            storage.data_ptr()
            for weight in (*self.model.parameters(), *self.model.buffers())
            if weight.device.type != "meta"
            for storage in storages(weight)
        }
        self._context = torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)
        self._context.__enter__()

    def _leave_model(self, output: Any) -> None:
        if self._context is not None:
            self._live.add(output, 1, 0)
            self.held.settle()
        self._close()

    def _begin_group(self) -> None:
        """No forward waits for a backward any more."""
        self.most = max(self.most, self.held, key=lambda held: held.total)
        self.held = Held()

    def _close(self) -> None:
        if self._context is not None:
            self._context.__exit__(None, None, None)
            self._context = None

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        self._count(self._layer, tensor)
        # An output packed as itself would be a reference cycle; autograd reattaches history to what unpack returns.
        return tensor if tensor.is_leaf else tensor.detach()

    def _count_outside(self, tensor: torch.Tensor) -> None:
        self._count(OUTSIDE, tensor)

    def _count(self, layer: str, tensor: torch.Tensor) -> None:
        if _is_weight(tensor):
            return
        for storage in storages(tensor):
            if storage.data_ptr() not in self._weights:
                self.held.add(layer, storage)


def _is_weight(tensor: torch.Tensor) -> bool:
    """Whether it is a parameter or a view of one; those that FSDP gathers live in storages of their own."""
    # ``_base`` is where a chain of views began (DifferentiableViewMeta, in torch/csrc/autograd/variable.h).
    base = tensor if tensor._base is None else tensor._base
    return isinstance(base, torch.nn.Parameter)


def _unpack(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@dataclass(frozen=True, slots=True)
class _SetLayer:
    meter: Meter
    name: str

    def __call__(self, *_: Any) -> None:
        self.meter.enter_layer(self.name)
