"""Arguments that a forward writes in place (a router's jitter, a mask): its replay finds them as they were before.

torch's checkpoint saves its arguments as they are. It notices a write by the tensor's version, but no saved tensor that
went through a hook is asked for its version (SavedVariable::unpack, in torch/csrc/autograd/saved_variable.cpp).
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

#: Whether the forwards of a module, or of a segment of modules, write to their arguments; known from the first one on.
_writes: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def checkpointed(run: Callable[..., Any], args: tuple[Any, ...], module: nn.Module | None, **options: Any) -> Any:
    """``run(*args)``, the forward of ``module``, under torch's non-reentrant checkpoint with these ``options``."""
    if module is None or not torch.is_grad_enabled() or _is_watched_by_torch(module):
        return checkpoint(run, *args, use_reentrant=False, preserve_rng_state=True, **options)
    inputs = SavedInputs(module)
    with inputs.saving():
        output = checkpoint(_on_what_was_given(run), *args, use_reentrant=False, preserve_rng_state=True, **options)
    inputs.settle()
    return output


def _is_watched_by_torch(inside: object) -> bool:
    """Whether no forward wrote to its arguments so far, and torch itself would notice one that does."""
    return _writes.get(inside) is False and torch._C._autograd._top_saved_tensors_default_hooks(False) is None


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

    ``inside`` is what the checkpoint is around: a module, say. Where its forwards write to their arguments, copies are
    saved. Before the first forward nobody knows, so each argument is copied until that forward has ended.
    """

    __slots__ = ("_inside", "_undecided", "_writes")

    def __init__(self, inside: object) -> None:
        self._inside = inside
        self._writes = _writes.get(inside)
        self._undecided: list[tuple[torch.Tensor, int, _Saved, torch.Tensor]] = []

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
        written = [(saved, copy) for tensor, version, saved, copy in self._undecided if tensor._version != version]
        for saved, copy in written:
            saved.replace(copy)
        if self._undecided:
            _note(self._inside, writes=bool(written))
        self._undecided.clear()

    def _pack(self, tensor: torch.Tensor, keep: Callable[[Any], Any], give_back: Callable[[Any], Any]) -> _Saved:
        if self._writes:
            return _Saved(keep(_copy(tensor)), give_back, is_copy=True)
        saved = _Saved(keep(tensor), give_back, is_copy=False)
        if self._writes is None:
            self._undecided.append((tensor, tensor._version, saved, _copy(tensor)))
        return saved


class ArgumentsBefore:
    """The tensors in ``arguments``, by place, as they are before a forward of ``module``.

    Those at the ``kept`` places will be needed as they are now.
    """

    __slots__ = ("_arguments", "_copies", "_kept", "_module", "_versions")

    def __init__(self, module: nn.Module, arguments: Mapping[int, torch.Tensor], kept: frozenset[int]) -> None:
        self._module = module
        self._arguments = arguments
        self._kept = kept
        self._versions = {place: tensor._version for place, tensor in arguments.items()}
        self._copies = {} if _writes.get(module) is False else {place: _copy(arguments[place]) for place in kept}

    def written(self) -> dict[int, torch.Tensor]:
        """Copies of the kept ones that were written. Raises RuntimeError where nobody knows any more what they held."""
        written = {place for place, tensor in self._arguments.items() if tensor._version != self._versions[place]}
        needed = written & self._kept
        _note(self._module, writes=bool(written))  # a step that is tried again finds copies
        if not needed <= self._copies.keys():
            raise RuntimeError(_unknown(f"an argument of {type(self._module).__name__}"))
        return {place: self._copies[place] for place in needed}


class _Saved:
    """What stands for one saved tensor: what the hooks below keep of it, or a copy."""

    __slots__ = ("_give_back", "_handle", "_is_copy", "_version")

    def __init__(self, handle: Any, give_back: Callable[[Any], Any], *, is_copy: bool) -> None:
        self._handle = handle
        self._give_back = give_back
        self._is_copy = is_copy
        self._version = handle._version if isinstance(handle, torch.Tensor) else 0

    def replace(self, copy: torch.Tensor) -> None:
        self._handle, self._give_back, self._is_copy = copy, _itself, True

    def unpack(self) -> torch.Tensor:
        tensor: torch.Tensor = self._give_back(self._handle)
        if self._is_copy:  # the replay writes to it, and need not be the last one
            return _copy(tensor)
        if isinstance(self._handle, torch.Tensor) and self._handle._version != self._version:
            raise RuntimeError(_unknown("a tensor"))
        return tensor


def hooks_in_force() -> tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]:
    """The innermost saved-tensor hooks, which any put over them hide; two that keep a tensor as it is without any."""
    # Only the innermost pair of hooks sees a saved tensor (PyDefaultSavedVariableHooks, in
    # torch/csrc/autograd/python_saved_variable_hooks.cpp).
    below = torch._C._autograd._top_saved_tensors_default_hooks(False)
    return below if below is not None else (_kept, _itself)


def _note(inside: object, *, writes: bool) -> None:
    _writes[inside] = writes or _writes.get(inside, False)


def _unknown(what: str) -> str:
    return (
        f"{what} was written in place after it was saved for recompute, and no earlier forward did so: nothing can be "
        "recomputed from it; leave the layers that read it out of the policy"
    )


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    # Selective checkpointing counts the ops of a replay, and these are none of them (torch/utils/checkpoint.py).
    with _disable_current_modes():
        return tensor.detach().clone()


def _kept(tensor: torch.Tensor) -> torch.Tensor:
    # An output packed as itself would be a reference cycle; autograd gives what unpack returns its history again.
    return tensor if tensor.is_leaf else tensor.detach()


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
