"""True segment checkpointing on an untouched model: consecutive layers in one recomputed region.

The region is entered in the first layer's pre-forward hook and left in the last layer's forward hook, on torch's own
checkpoint generator (the mechanism of ``torch.distributed._composable.checkpoint``). In between, every layer's call is
recorded; the replay makes the recorded calls again, feeding each layer what the one before it returns. A layer finds
its buffers, attributes and switches as its forward found them (``engine/replayable.py``). What the model does between
two layers is outside the region. Where that changes the hidden state, or draws random numbers, the replay would miss
it: the region ends there and another one begins. A layer that is left out of a forward (LayerDrop) is left out of its
replay. A region that its last layer did not close ends with the forward of the module around the layers.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.checkpoint import (
    _DEFAULT_DETERMINISM_MODE,
    _checkpoint_without_reentrant_generator,
    noop_context_fn,
)
from transformers import Cache

from ..compat.kv_cache import snapshot
from ..engine.replayable import Found
from ..engine.saved_tensor_hooks import hooks_in_force
from ..engine.written_arguments import Given, HeldArguments, SavedInputs
from ..engine.written_buffers import on_copies
from .region import Region

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from torch import nn
    from torch.utils.hooks import RemovableHandle

    from ..engine.saved_tensor_hooks import Hooks


@dataclass(frozen=True, slots=True)
class _Output:
    """Stands in a recorded call for a tensor that an earlier layer of the segment returned."""

    call: int
    position: int


@dataclass(frozen=True, slots=True)
class _Input:
    """Stands in the first recorded call for a tensor: the checkpoint holds the segment's inputs, nobody else."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One layer's call: its arguments, flat, with symbols for what a replay makes again; ``held`` has the others.

    ``found`` is what else a replay must find.
    """

    layer: nn.Module
    leaves: list[Any]
    spec: Any
    held: HeldArguments
    found: Found


@dataclass(slots=True)
class _Recording:
    """The calls of one forward through the segment, and where each layer's tensors come from.

    ``first`` is the place in the segment of the layer that it begins with, ``hooks`` are the saved-tensor hooks that
    were in force before the segment's own.
    """

    first: int
    hooks: Hooks
    calls: list[_Call] = field(default_factory=list)
    #: By id: an output, its version when it was returned, and what stands for it.
    outputs: dict[int, tuple[torch.Tensor, int, _Output]] = field(default_factory=dict)
    random: torch.Tensor | None = None
    #: Notes what the latest layer finds and does while it runs.
    noting: Generator[None, None, None] | None = None
    #: What the layer that a replay calls is given, and what it finds until ``inside`` is closed.
    given: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    found: Found | None = None
    inside: ExitStack = field(default_factory=ExitStack)

    def add_call(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        leaves, spec = tree_flatten((args, kwargs))
        symbol = self._symbol if self.calls else _as_input
        # The layer is about to write its keys and values; a replay must find the cache as it is now.
        kept = [snapshot(leaf) if isinstance(leaf, Cache) else symbol(leaf) for leaf in leaves]
        found = Found(layer, self.hooks)
        self.calls.append(_Call(layer, kept, spec, HeldArguments(layer, kept), found))
        self.noting = _noting(found, leaves)
        next(self.noting)

    def add_output(self, output: Any) -> None:
        if self.noting is not None:
            next(self.noting, None)
        self.noting = None
        self.calls[-1].held.settle()
        index = len(self.calls) - 1
        tensors = [(i, leaf) for i, leaf in enumerate(tree_flatten(output)[0]) if isinstance(leaf, torch.Tensor)]
        for position, tensor in tensors:
            self.outputs[id(tensor)] = (tensor, tensor._version, _Output(index, position))
        self.random = _random_state(tensors[0][1].device) if tensors else None

    def continues(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call with these arguments takes up what the latest layer left: its output and random state."""
        hidden = args[0] if args else kwargs.get("hidden_states")
        if not isinstance(hidden, torch.Tensor) or self.random is None:
            return False
        match self._symbol(hidden):
            case _Output(call, _) if call == len(self.calls) - 1:
                return torch.equal(self.random, _random_state(hidden.device))
        return False

    def _symbol(self, leaf: Any) -> Any:
        known = self.outputs.get(id(leaf))
        # What is written into an output after its layer returned keeps its identity, and raises its version
        # (VariableVersion, in c10/core/TensorImpl.h).
        same = known is not None and known[0] is leaf and known[1] == leaf._version
        return known[2] if known is not None and same else leaf

    def seal(self) -> None:
        """Forget the outputs: what a replay makes again must not be kept alive."""
        self.outputs.clear()

    def replay(self, *inputs: torch.Tensor) -> None:
        """Make every recorded call again. ``inputs`` are the tensor arguments of the first call."""
        results: list[list[Any]] = []
        fresh = iter(inputs)
        for call in self.calls:
            values: list[Any] = []
            for leaf in call.held.restored(call.leaves):
                match leaf:
                    case _Input():
                        values.append(next(fresh))
                    case _Output(made_by, position):
                        values.append(results[made_by][position])
                    case Cache():
                        values.append(snapshot(leaf))
                    case _:
                        values.append(leaf)
            self.given = args, kwargs = tree_unflatten(values, call.spec)
            self.found = call.found
            with call.found.restored(), self.inside:
                results.append(tree_flatten(call.layer(*args, **kwargs))[0])
        self.given, self.found = ((), {}), None

    def given_again(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the layer is given, whose attributes are once more what its forward found."""
        if self.found is not None:
            self.inside.enter_context(self.found.attributes_restored())
        return self.given

    def abandon(self) -> None:
        """The latest layer did not end."""
        if self.noting is not None:
            self.noting.close()
        self.noting = None


def _noting(found: Found, leaves: list[Any]) -> Generator[None, None, None]:
    with found.noted(tuple(leaves)):
        yield


def _as_input(leaf: Any) -> Any:
    return _Input() if isinstance(leaf, torch.Tensor) else leaf


def _random_state(device: torch.device) -> torch.Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


class OpenSegment:
    """Which segment of a model is open in this thread: its saved-tensor hooks must go before another's come."""

    def __init__(self) -> None:
        self._local = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return OpenSegment, ()

    @property
    def segment(self) -> SegmentRegion | None:
        """The open one."""
        return getattr(self._local, "segment", None)

    @segment.setter
    def segment(self, segment: SegmentRegion | None) -> None:
        self._local.segment = segment

    def leave(self, *_: Any) -> None:
        """End it behind its latest layer, if one is open. A forward hook of the modules around the layers."""
        if self.segment is not None:
            self.segment.leave()


class SegmentRegion(Region):
    """``modules`` are the segment's layers in order of execution; ``install`` puts the hooks, ``remove`` takes them.

    ``around`` are the modules whose forward calls the layers, ``opened`` what the segments of one model share.
    """

    def __init__(
        self,
        layers: tuple[str, ...],
        modules: tuple[nn.Module, ...],
        around: tuple[nn.Module, ...],
        opened: OpenSegment,
    ) -> None:
        super().__init__(layers)
        self.modules = modules
        self.around = around
        self.opened = opened
        self._handles: list[RemovableHandle] = []
        self._local = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_local": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._local = threading.local()

    def install(self) -> None:
        """Register the hooks on every layer of the segment."""
        for module in self.modules:
            self._handles.append(module.register_forward_pre_hook(self._before, with_kwargs=True, prepend=True))
            self._handles.append(module.register_forward_hook(self._after, always_call=True))
        for module in self.around:
            self._handles.append(module.register_forward_pre_hook(self._before_all, prepend=True))
            self._handles.append(module.register_forward_hook(self._after_all, always_call=True))

    def remove(self) -> None:
        """Remove the hooks, and leave a forward that an interrupt (no hook runs then) broke off inside the segment."""
        self._close()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _before(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if self._replaying:
            self._resume()
            # A hook that runs before this one changed arguments and attributes in the forward already, and now again.
            replayed: _Recording = self._local.replayed
            return replayed.given_again()
        if not (self.active and module.training and torch.is_grad_enabled()):
            return None
        place = self._place(module)
        recording: _Recording | None = getattr(self._local, "recording", None)
        if recording is None or place < self._next_place(recording):
            self._close()  # an earlier forward that was interrupted between two layers
            self._open(args, kwargs, first=place)
        else:
            self._resume()
            if not recording.continues(args, kwargs):
                self.leave()
                self._open(args, kwargs, first=place)
        self._local.recording.add_call(module, args, kwargs)
        return None

    def _after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        recording = getattr(self._local, "recording", None)
        if self._replaying and output is not None:
            self._pause()
        if self._replaying or recording is None:
            return
        if output is None:  # always_call: the layer raised
            self._close()
            return
        recording.add_output(output)
        self._pause()
        if module is self.modules[-1]:
            self.leave()

    def _before_all(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Leave what an interrupt broke off, before this forward saves its first tensor."""
        if not self._replaying and self.opened.segment is self:
            self._close()

    def _after_all(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not self._replaying and self.opened.segment is self:
            self.leave()

    def _place(self, module: nn.Module) -> int:
        return next(place for place, known in enumerate(self.modules) if known is module)

    def _next_place(self, recording: _Recording) -> int:
        return self._place(recording.calls[-1].layer) + 1 if recording.calls else recording.first

    @property
    def _replaying(self) -> bool:
        return getattr(self._local, "replaying", False)

    def _open(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, first: int) -> None:
        self.opened.leave()
        recording = _Recording(first, hooks_in_force())
        tensors = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]
        generator: Generator[None, None, None] = _checkpoint_without_reentrant_generator(
            self.counted(self._replay_of(recording, Given(tuple(tensors)))),
            True,  # preserve_rng_state
            noop_context_fn,
            _DEFAULT_DETERMINISM_MODE,
            False,  # debug
            True,  # early_stop
            *tensors,
        )
        inputs = SavedInputs(self)
        with ExitStack() as stack:
            stack.enter_context(inputs.saving())
            next(generator)
            self._local.inputs, self._local.saving = inputs, stack.pop_all()
        self._local.recording, self._local.generator = recording, generator
        self.opened.segment = self

    def _replay_of(self, recording: _Recording, given: Given) -> Any:
        def replay(*inputs: torch.Tensor) -> None:
            interrupted, self._local.pause = getattr(self._local, "pause", None), None
            self._local.replaying, self._local.replayed = True, recording
            try:
                with on_copies(call.found.written for call in recording.calls):
                    recording.replay(*given.restored(inputs))
            finally:
                self._resume()
                self._local.replaying, self._local.replayed, self._local.pause = False, None, interrupted

        return replay

    def counted(self, function: Callable[..., None]) -> Callable[..., None]:
        """Counts like the other regions; the generator calls ``function`` for replays only."""
        self.calls += 1

        def run(*inputs: torch.Tensor) -> None:
            self.replays += 1
            function(*inputs)

        return run

    def leave(self) -> None:
        """End the region behind its latest layer."""
        self._resume()
        recording: _Recording = self._local.recording
        if self.observer is not None:
            for call in recording.calls:
                self.observer.hold(self.layers[self._place(call.layer)], call.leaves)
        recording.seal()
        generator = self._local.generator
        self._local.recording = self._local.generator = self.opened.segment = None
        try:
            next(generator, None)
        finally:
            inputs = self._stop_saving()
        inputs.settle()

    def _pause(self) -> None:
        """Until the next layer, tensors are saved as they are: the replay makes none of what the model saves there."""
        # Only the innermost pair of hooks sees a saved tensor, and these hide the checkpoint's
        # (torch/csrc/autograd/python_saved_variable_hooks.cpp).
        self._local.pause = torch.autograd.graph.saved_tensors_hooks(_itself, _itself)
        self._local.pause.__enter__()

    def _resume(self) -> None:
        pause, self._local.pause = getattr(self._local, "pause", None), None
        if pause is not None:
            pause.__exit__()

    def _close(self) -> None:
        """Leave the region without a result, so that no saved-tensor hook outlives a failed forward."""
        self._resume()
        generator, recording = getattr(self._local, "generator", None), getattr(self._local, "recording", None)
        if recording is not None:
            recording.abandon()
        self._local.recording = self._local.generator = None
        if self.opened.segment is self:
            self.opened.segment = None
        if generator is not None:
            generator.close()
            self._stop_saving()

    def _stop_saving(self) -> SavedInputs:
        inputs: SavedInputs = self._local.inputs
        # These hooks lie under the checkpoint's, and hooks leave in the order opposite to that in which they came.
        self._local.saving.close()
        self._local.inputs = self._local.saving = None
        return inputs
