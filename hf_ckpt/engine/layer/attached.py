"""Tensors that hang on an attribute of something else than a module.

A quantised weight is a plain tensor of packed integers; what it means is in its own attributes (bitsandbytes'
``Params4bit.quant_state``, an object with the scales) or in an object of its module (``Linear8bitLt.state``).
"""

from __future__ import annotations

import enum
import functools
import types
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NOT_STATE = (
    nn.Module, enum.Enum, type, types.ModuleType, types.MethodType, types.FunctionType, types.BuiltinFunctionType,
    functools.partial,
)  # fmt: skip
_MAX_DEPTH = 3


def is_plain_storage(tensor: torch.Tensor) -> bool:
    """Whether ops see a tensor's own memory: a subclass that only carries attributes, not one that dispatches."""
    dispatch: Any = type(tensor).__torch_dispatch__
    return dispatch is torch.Tensor.__torch_dispatch__


def has_state(value: Any) -> bool:
    """Whether the attributes of ``value`` are state of the layer that holds it."""
    # Every module has a dozen tables of hooks, which have a place for attributes and none in it.
    if type(value) is OrderedDict or isinstance(value, _NOT_STATE):
        return False
    if not isinstance(getattr(value, "__dict__", None), dict):
        return False
    return not any(vars(kind).get("__slots__") for kind in type(value).__mro__)


def objects_in(owner: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The objects behind the attributes of ``owner``, and behind theirs, each with its path of attributes."""
    yield from _objects_in(owner, (), {id(owner)})


def tensors_in(owner: Any) -> Iterator[tuple[tuple[str, ...], torch.Tensor]]:
    """The tensors behind the attributes of ``owner`` and of its objects, each with its path of attributes."""
    for path, holder in (((), owner), *objects_in(owner)):
        for name, value in vars(holder).items():
            if isinstance(value, torch.Tensor):
                yield (*path, name), value


def copied(owner: Any, replaced: Callable[[Any], Any]) -> Any:
    """A copy of an object and of the objects behind its attributes, each attribute mapped by ``replaced``."""
    return _copied(owner, replaced, {}, 0)


def attributes_of(tensor: torch.Tensor, replaced: Callable[[Any], Any]) -> dict[str, Any]:
    """The attributes of a tensor of a subclass, copied the same way."""
    return {name: _copied(value, replaced, {id(tensor): None}, 1) for name, value in vars(tensor).items()}


def _objects_in(owner: Any, path: tuple[str, ...], seen: set[int]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if len(path) >= _MAX_DEPTH:
        return
    for name, value in vars(owner).items():
        if isinstance(value, torch.Tensor) or not has_state(value) or id(value) in seen:
            continue
        seen.add(id(value))
        yield (*path, name), value
        yield from _objects_in(value, (*path, name), seen)


def _copied(value: Any, replaced: Callable[[Any], Any], done: dict[int, Any], depth: int) -> Any:
    if isinstance(value, torch.Tensor) or not has_state(value) or depth > _MAX_DEPTH:
        return replaced(value)
    if id(value) not in done:
        try:
            twin = done[id(value)] = object.__new__(type(value))
        except TypeError:  # an object of an extension
            return value
        items = vars(value).items()
        twin.__dict__.update({name: _copied(item, replaced, done, depth + 1) for name, item in items})
    return done[id(value)]
