"""Names for tensors that the user's own code holds: module globals, locals, attributes, what hooks close over."""

from __future__ import annotations

import functools
import inspect
import sys
from collections import deque
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import islice
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from transformers import Cache, Trainer, TrainerCallback
from transformers.cache_utils import CacheLayerMixin

from ..place import Place, growing_line, is_users

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

_CONTAINERS = (list, tuple, set, frozenset, dict, deque)
#: How deep tensors are looked for: a list of model outputs of tuples of tensors is three.
_DEPTH = 5
#: How many leaves of one container are looked at: a tokenised data set in a list has hundreds of millions.
_LEAVES = 1_000_000
_OWN_TABLES = frozenset({"_parameters", "_buffers", "_modules"})
#: What is looked into by itself, or holds everything there is.
_NO_RECORDS = (
    torch.Tensor,
    torch.nn.Module,
    torch.optim.Optimizer,
    ModuleType,
    FunctionType,
    type,
    TrainerCallback,
    Trainer,
)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(slots=True)
class Holder:
    """Something with a name that holds tensors.

    Attributes:
        name: What it is called where it is: ``losses``, ``Collect.outputs``.
        filename: The file whose code calls it so.
        tensors: All tensors in it.
        nbytes: Bytes of theirs that nobody else was counted for.
    """

    name: str
    filename: str
    tensors: list[torch.Tensor] = field(default_factory=list)
    nbytes: int = 0

    @property
    def place(self) -> Place | None:
        """The line that adds to it, where one line does."""
        line = growing_line(self.filename, self.name)
        return None if line is None else Place(self.filename, line)


@dataclass(frozen=True, slots=True)
class _Named:
    name: str
    filename: str
    value: Any
    depth: int = 0


def find_holders(owners: Iterable[object], frames: Iterable[FrameType], modules: torch.nn.Module) -> list[Holder]:
    """Everything with a name that holds tensors and is not the model's.

    Args:
        owners: Objects whose attributes may hold some: a Trainer, its callbacks.
        frames: Frames whose locals may.
        modules: A model, for what its modules hold beside their tensors, and for what their hooks close over.
    """
    waiting = [*_of_objects(owners), *_of_frames(frames), *_of_scripts(), *_of_modules(modules)]
    seen: set[int] = set()
    found = []
    while waiting:
        named = waiting.pop(0)
        if id(named.value) in seen:
            continue
        seen.add(id(named.value))
        tensors = _tensors_in(named.value)
        if tensors:
            found.append(Holder(named.name, named.filename, tensors))
        elif named.depth < _DEPTH:
            waiting += _parts(named)
    return found


def _tensors_in(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in islice(_leaves(value), _LEAVES) if isinstance(leaf, torch.Tensor)]


def _leaves(value: Any, depth: int = 0) -> Iterator[Any]:
    parts = None if depth == _DEPTH else _held_by(value, depth)
    if parts is None:
        yield value
        return
    for part in parts:
        yield from _leaves(part, depth + 1)


def _held_by(value: Any, depth: int) -> list[Any] | None:
    """What a container holds, a record (a dataclass, a KV cache), or an object of the user's in one of these."""
    if isinstance(value, _CONTAINERS):
        return list(value.values() if isinstance(value, dict) else value)
    if isinstance(value, _NO_RECORDS):
        return None
    if is_dataclass(value):
        return [getattr(value, part.name, None) for part in fields(value)]
    if isinstance(value, Cache | CacheLayerMixin) or (depth and is_users(_file_of(type(value)))):
        return list(getattr(value, "__dict__", {}).values())
    return None


def _parts(named: _Named) -> Iterator[_Named]:
    """What stands behind a name that is no container of tensors: attributes, variables that a function closes over."""
    value, depth = named.value, named.depth + 1
    if isinstance(value, functools.partial):
        yield _Named(named.name, named.filename, value.func, depth)
        for part in (*value.args, *value.keywords.values()):
            yield _Named(named.name, named.filename, part, depth)
    elif isinstance(value, MethodType):
        yield _Named(_class_of(value.__self__), named.filename, value.__self__, depth)
    elif isinstance(value, FunctionType):
        yield from _of_function(value, depth)
    elif isinstance(value, type) and is_users(_file_of(value)):
        yield from _of_class(value, depth)
    elif isinstance(value, torch.nn.Module | ModuleType | type | torch.optim.Optimizer):
        return
    elif is_users(_file_of(type(value))):
        yield from _attributes(_class_of(value), _file_of(type(value)), value, depth)


def _of_function(function: FunctionType, depth: int) -> Iterator[_Named]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield _Named(name, function.__code__.co_filename, cell.cell_contents, depth)
        except ValueError:  # not bound yet
            continue
    for value in function.__defaults__ or ():
        yield _Named(function.__name__, function.__code__.co_filename, value, depth)


def _of_objects(owners: Iterable[object]) -> Iterator[_Named]:
    for owner in owners:
        yield from _attributes(_class_of(owner), _file_of(type(owner)), owner, 0)


def _attributes(name: str, filename: str, owner: object, depth: int) -> Iterator[_Named]:
    for key, value in list(getattr(owner, "__dict__", {}).items()):
        yield _Named(f"{name}.{key}", filename, value, depth)
    for kind in type(owner).__mro__:
        if is_users(_file_of(kind)):
            yield from _of_class(kind, depth)


def _of_class(kind: type, depth: int) -> Iterator[_Named]:
    """What stands on the class itself, and is the same for all its objects."""
    for key, value in list(vars(kind).items()):
        if not key.startswith("__") and not isinstance(value, FunctionType | property | classmethod | staticmethod):
            yield _Named(f"{kind.__name__}.{key}", _file_of(kind), value, depth)


def _of_frames(frames: Iterable[FrameType]) -> Iterator[_Named]:
    for frame in frames:
        filename = frame.f_code.co_filename
        if is_users(filename) and frame.f_code.co_name != "<module>":
            for name, value in list(frame.f_locals.items()):
                yield _Named(name, filename, value, 1)


def _of_scripts() -> Iterator[_Named]:
    """Globals of every module of the user's."""
    for module in list(sys.modules.values()):
        filename = getattr(module, "__file__", None)
        if not isinstance(module, ModuleType) or not isinstance(filename, str | None):
            continue
        if is_users(filename or "") or (module.__name__ == "__main__" and filename is None):
            for name, value in list(vars(module).items()):
                if not name.startswith("__"):
                    yield _Named(name, filename or "__main__", value, 1)


def _of_modules(model: torch.nn.Module) -> Iterator[_Named]:
    for module in model.modules():
        kind = type(module)
        for name, value in list(vars(module).items()):
            if name not in _OWN_TABLES and name not in _HOOKS:
                yield _Named(f"{kind.__name__}.{name}", _file_of(kind), value, _DEPTH - 1)
        for table in _HOOKS:
            for hook in list(getattr(module, table, {}).values()):
                if is_users(_file_of(hook)):
                    yield _Named(getattr(hook, "__name__", kind.__name__), _file_of(hook), hook, 0)


def _class_of(value: object) -> str:
    return type(value).__name__


def _file_of(what: Any) -> str:
    """The file that defines a class or function; empty when there is none."""
    while isinstance(what, functools.partial):
        what = what.func
    if isinstance(what, MethodType):
        what = type(what.__self__)
    if not isinstance(what, FunctionType | type):
        what = type(what)
    try:
        return inspect.getfile(what)
    except (TypeError, OSError):
        return ""
