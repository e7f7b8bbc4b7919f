"""Counts what each piece of a layer saves for backward, in a forward that really runs.

A layer that cannot be traced has no ledger from metadata. Its own forward shows one: saved-tensor hooks see every
storage that autograd saves, and the pieces that are running then. The hooks stand over those that are there already
(``torch.utils.checkpoint``'s, a meter's) and hand every tensor on, so nothing more is kept than without them.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import ref

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_iter

from ...compat.wrappers import local_shard
from ..saved_tensor_hooks import hooks_in_force
from .pieces import LAYER
from .watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

#: Who saved a storage: the pieces that ran then, the outermost first. The layer itself is not among them.
Savers = tuple[str, ...]


@dataclass(slots=True)
class PieceCount:
    """What one piece was given (storages, by key), and the clock before and after each of its runs.

    ``counting`` are the seconds in between that the processor spent on counting.
    """

    inputs: set[int] = field(default_factory=set)
    clocks: list[tuple[Any, Any]] = field(default_factory=list)
    counting: float = 0.0

    def seconds(self) -> float:
        """Time that its runs took."""
        ran = sum(_seconds(start, end) for start, end in self.clocks)
        return max(0.0, ran - self.counting) if self.clocks and isinstance(self.clocks[0][0], float) else ran


class SavedCounter:
    """One forward of ``layer`` with the tensors in ``inputs``: which storages autograd saves, and where.

    ``around`` has the name of the piece around each piece, ``watch`` says which of them must not be replayed alone.
    ``bytes_of`` and ``savers`` are by storage key, ``pieces`` by name. Storages of parameters and module buffers are
    left out. What only a graph saved that is gone when the forward ends
    (``x.max().item()``) is left out by :meth:`settle`.
    """

    def __init__(
        self, layer: torch.nn.Module, inputs: list[torch.Tensor], around: Mapping[str, str] | None = None
    ) -> None:
        self.watch = Watch(layer, around or {})
        self.bytes_of: dict[int, int] = {}
        self.savers: dict[int, set[Savers]] = {}
        self.pieces: dict[str, PieceCount] = {}
        #: The layer as a whole, its pieces among it.
        self.whole = PieceCount()
        #: Bytes of each choice that a replay of the pieces that ran then keeps, and these pieces.
        self.choices: list[tuple[int, Savers]] = []
        self.device = inputs[0].device if inputs else torch.device("cpu")
        #: Weak references keep a storage's key from being given to another one.
        self._alive: set[StorageWeakRef] = set()
        weights = (*layer.parameters(), *layer.buffers())
        self._weights = {key for weight in weights for key in self.keys(weight)}
        self.inputs = [self.keys(tensor) for tensor in inputs]
        #: For each saved tensor its storage, who saved it, and whether the graph still has it.
        self._saved: list[tuple[int, Savers, Callable[[], Any]]] = []
        self._running: Savers = ()
        self._counting = 0.0

    def keys(self, tensor: torch.Tensor) -> list[int]:
        """The keys of the storages behind a tensor; a subclass may have several."""
        found = []
        for storage in storages(tensor):
            reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
            self._alive.add(reference)
            self.bytes_of.setdefault(reference.cdata, storage.nbytes())
            found.append(reference.cdata)
        return found

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count what is saved inside, under whatever hooks are in force."""
        keep, give_back = hooks_in_force()  # what a checkpoint around this one put there must go on

        def pack(tensor: torch.Tensor) -> Any:
            handle = keep(tensor)
            start = time.perf_counter()
            self._count(tensor, handle)
            self._counting += time.perf_counter() - start
            return handle

        with torch.autograd.graph.saved_tensors_hooks(pack, give_back):
            yield

    @contextmanager
    def running(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[None]:
        """The piece called ``name`` (:data:`LAYER`: the layer itself) runs inside."""
        entered = time.perf_counter()
        count = self.whole if name == LAYER else self.pieces.setdefault(name, PieceCount())
        tensors = [value for value in tree_iter((args, kwargs)) if isinstance(value, torch.Tensor)]
        for tensor in tensors:
            count.inputs.update(self.keys(tensor))
        around = self._running
        over = self.watch.entered(name, around, tensors)
        self._running = () if name == LAYER else (*around, name)
        self._counting += time.perf_counter() - entered
        before, start = self._counting, _now(self.device)
        try:
            yield
        finally:
            count.clocks.append((start, _now(self.device)))
            left = time.perf_counter()
            count.counting += self._counting - before
            self._running = around
            over()
            self._counting += time.perf_counter() - left

    def chose(self, nbytes: int) -> None:
        """The layer makes a choice of so many bytes, which no replay makes again."""
        self.choices.append((nbytes, self._running))

    def settle(self) -> None:
        """The forward is over: forget what was saved by graphs that nobody can call backward on."""
        self.watch.settle()
        self.savers = {}
        for key, saver, handle in self._saved:
            if handle() is not None:
                self.savers.setdefault(key, set()).add(saver)

    def _count(self, tensor: torch.Tensor, handle: Any) -> None:
        if isinstance(tensor if tensor._base is None else tensor._base, torch.nn.Parameter):
            return  # FSDP gathers parameters into storages of their own
        for key in self.keys(tensor):
            if key not in self._weights:
                self.savers.setdefault(key, set()).add(self._running)
                self._saved.append((key, self._running, _life_of(handle)))


def storages(tensor: torch.Tensor) -> Iterator[torch.UntypedStorage]:
    """The storages behind a tensor, those inside a subclass (DTensor, torchao's) too; none for a sparse one."""
    tensor = local_shard(tensor)
    if is_traceable_wrapper_subclass(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            yield from storages(getattr(tensor, name))
    elif tensor.layout is torch.strided:
        yield tensor.untyped_storage()


def _life_of(handle: Any) -> Callable[[], Any]:
    """Asked later: None when the graph's node, which owns what a pack hook returned, is gone."""
    try:
        return ref(handle)
    except TypeError:  # a tuple, say: nobody can know
        return lambda: True


def _now(device: torch.device) -> Any:
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def _seconds(start: Any, end: Any) -> float:
    if isinstance(start, float):
        return float(end - start)
    end.synchronize()
    return float(start.elapsed_time(end) / 1000)
