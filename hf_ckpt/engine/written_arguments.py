"""Arguments that somebody writes in place (a router's jitter, a mask): a replay finds them as its forward did.

torch's checkpoint saves its arguments as they are. It notices a write by the tensor's version, but no saved tensor that
went through a hook is asked for its version (SavedVariable::unpack, in torch/csrc/autograd/saved_variable.cpp). What is
bound to the function, as transformers binds every keyword argument, it does not save at all.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from .nested_tensors import tensors_in, with_tensors
from .readings import Reading, copied, reading_of, share, unknown, version_of
from .replayable import replayable
from .saved_tensor_hooks import hooks_in_force

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping

#: By module, or segment of modules: whether its forwards write to the tensor at a place among their arguments; known
#: from the first one on.
_writes: weakref.WeakKeyDictionary[Any, dict[Hashable, bool]] = weakref.WeakKeyDictionary()
#: Those that write to any.
_writers: weakref.WeakSet[Any] = weakref.WeakSet()


def checkpointed(
    forward: Callable[..., Any],
    args: tuple[Any, ...],
    module: nn.Module | None,
    *,
    replay: Callable[..., Any] | None = None,
    replaying: Callable[[], None] = lambda: None,
    **options: Any,
) -> Any:
    """Call a forward under torch's non-reentrant checkpoint.

    Args:
        forward: Called with ``args``.
        args: The tensors among them are saved, and distinct.
        module: Whose forward it is. Without one nothing is learned, and each forward copies its arguments.
        replay: What computes the same again, if not ``forward``: a ``functools.partial`` shows what is bound to it.
        replaying: Told of every replay.
        options: Those of ``torch.utils.checkpoint.checkpoint``.
    """
    if not torch.is_grad_enabled():
        return forward(*args)
    held = HeldArguments(module, replay or forward, args)
    run = replayable(forward, held.replay, module, replaying)
    if _is_watched_by_torch(module):
        output = checkpoint(run, *args, use_reentrant=False, preserve_rng_state=True, **options)
    else:
        inputs = SavedInputs(module)
        with inputs.saving():
            output = checkpoint(_on_what_was_given(run), *args, use_reentrant=False, preserve_rng_state=True, **options)
        inputs.settle()
    held.settle()
    return output


def _is_watched_by_torch(inside: object) -> bool:
    """Whether no forward wrote to its arguments so far, and torch itself would notice one that does."""
    if inside is None or inside not in _writes or _writers:
        return False
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is None


def _on_what_was_given(run: Callable[..., Any]) -> Callable[..., Any]:
    """``run``, whose later calls get the very tensors of the first one where nobody wrote to them."""
    given: Given | None = None

    def again(*args: Any) -> Any:
        nonlocal given
        if given is None:
            given = Given(args)
            return run(*args)
        return run(*given.restored(args))

    return again


class Given:
    """The tensors among the arguments of a call, for a replay that may get others of the same values.

    A tensor that went through a hook comes back as another object (SavedVariable::unpack), and a forward may ask
    whether two arguments are one, whether one is a parameter, or what somebody hung on it.
    """

    __slots__ = ("_tensors",)

    def __init__(self, args: tuple[Any, ...]) -> None:
        self._tensors = [(weakref.ref(a), a._version) if isinstance(a, torch.Tensor) else None for a in args]

    def restored(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """``args``, with the tensors of the first call that are alive and as they were."""
        return tuple(map(_restored, self._tensors, args))


def _restored(known: tuple[weakref.ref[torch.Tensor], int] | None, arg: Any) -> Any:
    tensor = None if known is None else known[0]()
    return arg if tensor is None or known is None or tensor._version != known[1] else tensor


class SavedInputs:
    """The tensors that a checkpoint saves, for replays that find them as the forward did.

    ``inside`` is what the checkpoint is around: a module, say. Where its forwards write to an argument, a copy is
    saved. Before the first forward nobody knows, so each argument is copied until that forward has ended.
    """

    __slots__ = ("_copies", "_inside", "_known", "_places")

    def __init__(self, inside: object) -> None:
        self._inside = inside
        self._known = _known_of(inside)
        self._places = 0
        self._copies: list[tuple[Hashable, torch.Tensor, int, torch.Tensor]] = []

    @contextmanager
    def saving(self) -> Iterator[None]:
        """What the checkpoint itself saves inside goes through here, and on to whatever hooks are in force."""
        if _is_watched_by_torch(self._inside):
            yield
            return
        below = hooks_in_force()
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: self._pack(tensor, *below), _Saved.unpack):
            yield

    def settle(self) -> None:
        """The forward is over: its arguments were written, or they were not."""
        written = {}
        for place, tensor, version, copy in self._copies:
            written[place] = tensor._version != version
            if written[place]:
                share(tensor, version, copy)
        _note(self._inside, written)
        self._copies.clear()

    def _pack(self, tensor: torch.Tensor, keep: Callable[[Any], Any], give_back: Callable[[Any], Any]) -> _Saved:
        place = ("saved", self._places)
        self._places += 1
        writes = self._known.get(place)
        if writes is False:
            return _Saved(keep(tensor), give_back, reading_of(tensor))
        copy = copied(tensor)
        self._copies.append((place, tensor, tensor._version, copy))
        return _Saved(keep(copy), give_back, None) if writes else _Saved(keep(tensor), give_back, reading_of(tensor))


class HeldArguments:
    """The tensors that a replay gets otherwise than from the checkpoint: bound to its function, or inside containers.

    ``inside`` is as for :class:`SavedInputs`, ``call`` what a replay calls, ``args`` what the checkpoint gives it.
    """

    __slots__ = ("_args", "_call", "_copies", "_inside", "_places", "_readings", "_tensors")

    def __init__(self, inside: object, call: Any, args: tuple[Any, ...] = ()) -> None:
        self._inside = inside
        self._call = call
        known = _known_of(inside)
        saved = {id(arg): place for place, arg in enumerate(args) if isinstance(arg, torch.Tensor)}
        self._args = [(args[place], version_of(args[place])) for place in saved.values()]
        found = tensors_in((call, [arg for arg in args if not isinstance(arg, torch.Tensor)]))
        #: Where among ``args`` a tensor stands that is held too: a replay gets one tensor for both.
        self._places = {id(tensor): saved[id(tensor)] for _, tensor in found if id(tensor) in saved}
        self._tensors = found
        self._readings = [reading_of(tensor) for _, tensor in found]
        self._copies = {
            path: copied(tensor) for path, tensor in found if known.get(path) is not False and id(tensor) not in saved
        }

    def settle(self) -> None:
        """The forward is over. Raises RuntimeError where a replay could not tell what it writes from what it reads."""
        written = {id(tensor): tensor for tensor, version in self._args if version_of(tensor) != version}
        places: dict[Hashable, bool] = {}
        for (path, tensor), reading in zip(self._tensors, self._readings, strict=True):
            places[path] = version_of(tensor) != reading.version
            if places[path]:
                written[id(tensor)] = tensor
                if path in self._copies:
                    share(tensor, reading.version, self._copies[path])
        _note(self._inside, places)
        # Some stand in containers of the caller, who may drop them before backward.
        self._args, self._tensors, self._copies = [], [], {}
        if _share_memory([*written.values()]):
            raise RuntimeError(
                f"{type(self._inside).__name__} wrote in place to memory that two of its arguments share, and a replay "
                "could not do so; leave this layer out of the policy"
            )

    def replay(self, *args: Any) -> Any:
        """Call what a replay calls, with the tensors that it holds as the forward found them."""
        if self._are_current():
            return self._call(*args)
        now = self._as_read(args)
        call = with_tensors(self._call, now)
        return call(*(arg if isinstance(arg, torch.Tensor) else with_tensors(arg, now) for arg in args))

    def restored(self, value: Any) -> Any:
        """``value``, with the tensors that it holds as the forward found them."""
        return value if self._are_current() else with_tensors(value, self._as_read(()))

    def _are_current(self) -> bool:
        return all(reading.is_current for reading in self._readings)

    def _as_read(self, args: tuple[Any, ...]) -> Callable[[torch.Tensor], torch.Tensor]:
        now: dict[int, torch.Tensor] = {}
        for reading in self._readings:
            tensor = reading.tensor()
            if tensor is not None:
                place = self._places.get(id(tensor))
                now[id(tensor)] = reading.as_read(tensor) if place is None else args[place]
        return lambda tensor: now.get(id(tensor), tensor)


def _share_memory(tensors: list[torch.Tensor]) -> bool:
    alias: Callable[[torch.Tensor, torch.Tensor], bool] = torch._C._is_alias_of  # type: ignore[attr-defined]
    return any(alias(one, other) for k, one in enumerate(tensors) for other in tensors[:k])


class _Saved:
    """What stands for one saved tensor: what the hooks below keep of it, or of a copy, which has no ``reading``."""

    __slots__ = ("_give_back", "_handle", "_reading", "_version")

    def __init__(self, handle: Any, give_back: Callable[[Any], Any], reading: Reading | None) -> None:
        self._handle = handle
        self._give_back = give_back
        self._reading = reading
        self._version = handle._version if isinstance(handle, torch.Tensor) else 0

    def unpack(self) -> torch.Tensor:
        # A replay writes to a copy, and need not be the last one.
        if self._reading is None:
            return copied(self._give_back(self._handle))
        if self._reading.content is not None:
            return copied(self._reading.content)
        if isinstance(self._handle, torch.Tensor) and self._handle._version != self._version:
            raise RuntimeError(unknown("a tensor"))
        tensor: torch.Tensor = self._give_back(self._handle)
        return tensor


def _known_of(inside: object) -> dict[Hashable, bool]:
    return {} if inside is None else _writes.get(inside, {})


def _note(inside: object, written: Mapping[Hashable, bool]) -> None:
    if inside is None:
        return
    known = _writes.setdefault(inside, {})
    for place, writes in written.items():
        known[place] = writes or known.get(place, False)
    if any(written.values()):
        _writers.add(inside)
