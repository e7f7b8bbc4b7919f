"""State that an object keeps where its ``__dict__`` does not show it: generators of random numbers, arrays, slots.

A layer may hold one (dropout with a ``torch.Generator`` of its own). Its forward changes what is in there, and a replay
must find what the forward found.
"""

from __future__ import annotations

import random
import sys
from functools import lru_cache
from types import MemberDescriptorType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    #: What takes the state of such an object, and what sets it.
    _Access: TypeAlias = tuple[Callable[[Any], Any], Callable[[Any, Any], None]]

#: Larger arrays are taken for tables that nobody changes.
_MOST_BYTES = 1 << 20
#: What an object with slots may have in them.
_NUMBERS = (bool, int, float, complex, str, bytes, type(None))
_LIBRARIES = {"site-packages", "dist-packages"}


class InnerState:
    """The state of one such object, which is held, as it is now."""

    __slots__ = ("_before", "_of", "_read", "_write")

    def __init__(self, value: Any, access: _Access) -> None:
        self._of = value
        self._read, self._write = access
        self._before = self._read(value)

    def put(self) -> Callable[[], None]:
        """Let the object be as it was; returns what lets it be again as it is now."""
        now = self._read(self._of)
        self._set(self._before)
        return lambda: self._set(now)

    def is_current(self) -> bool:
        """Whether the object is as it was."""
        return _are_equal(self._read(self._of), self._before)

    def _set(self, state: Any) -> None:
        if not _are_equal(self._read(self._of), state):  # an array may be one that nobody can write to
            self._write(self._of, state)


def inner_state_of(value: Any) -> InnerState | None:
    """The state that ``value`` keeps inside; None for what keeps none."""
    kind: Any = type(value)
    access = _access_to(kind)
    if access is None or getattr(value, "nbytes", 0) > _MOST_BYTES:
        return None
    if access[0] is state_of and not all(isinstance(each, _NUMBERS) for each in state_of(value).values()):
        return None
    return InnerState(value, access)


@lru_cache(maxsize=1024)
def _access_to(kind: Any) -> _Access | None:
    if kind is torch.Generator:
        return torch.Generator.get_state, _set_state
    if issubclass(kind, random.Random) and not issubclass(kind, random.SystemRandom):
        return random.Random.getstate, random.Random.setstate
    if _slots_of(kind):
        return state_of, _set_attributes
    numpy = sys.modules.get("numpy")
    if numpy is None or not kind.__module__.startswith("numpy"):
        return None
    if issubclass(kind, numpy.random.RandomState):
        return numpy.random.RandomState.get_state, numpy.random.RandomState.set_state
    if issubclass(kind, numpy.random.Generator):
        return lambda drawn: drawn.bit_generator.state, lambda drawn, state: setattr(
            drawn.bit_generator, "state", state
        )
    return (numpy.copy, numpy.copyto) if kind is numpy.ndarray else None


def is_array(value: Any) -> bool:
    """Whether it is an array or a number of NumPy's."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and (type(value) is numpy.ndarray or issubclass(type(value), numpy.generic))


def state_of(value: Any) -> dict[str, Any]:
    """What an object with slots has in them, and its other attributes."""
    slots = {name: getattr(value, name) for name in slots_in(value) if hasattr(value, name)}
    return {**slots, **getattr(value, "__dict__", {})}


def _set_attributes(value: Any, state: dict[str, Any]) -> None:
    for name in state_of(value).keys() - state.keys():
        object.__delattr__(value, name)
    for name, each in state.items():
        object.__setattr__(value, name, each)


def _set_state(generator: torch.Generator, state: torch.Tensor) -> None:
    generator.set_state(state)


def _are_equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        with _disable_current_modes():
            return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_are_equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_are_equal, one, other))
    if hasattr(one, "tobytes"):
        return bool(one.tobytes() == other.tobytes())
    return bool(one == other)


def is_plain_object(value: Any) -> bool:
    """Whether an object is its attributes, and no library brings its class.

    A library's object may be state of the run (bitsandbytes' weights, accelerate's hooks), which its own code keeps
    right in a replay.
    """
    kind: Any = type(value)
    return _is_of_plain_objects(kind)


@lru_cache(maxsize=1024)
def _is_of_plain_objects(kind: type) -> bool:
    if kind is SimpleNamespace:
        return True
    root = kind.__module__.partition(".")[0]
    is_made_plainly = getattr(kind, "__new__", None) is object.__new__
    if not is_made_plainly or not kind.__dictoffset__ or issubclass(kind, nn.Module):
        return False
    # What is in slots is not among the attributes that a replay could give another object.
    return not _slot_names(kind) and not _is_of_a_library(root)


def _is_of_a_library(root: str) -> bool:
    if root == __package__.partition(".")[0] or root in sys.stdlib_module_names:
        return True
    module = sys.modules.get(root)
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    return any(_LIBRARIES.intersection(str(place).replace("\\", "/").split("/")) for place in places)


def slots_in(value: Any) -> tuple[str, ...]:
    """The slots of an object whose class no library brings."""
    kind: Any = type(value)
    return _slots_of(kind)


@lru_cache(maxsize=1024)
def _slots_of(kind: Any) -> tuple[str, ...]:
    return () if _is_of_a_library(kind.__module__.partition(".")[0]) else _slot_names(kind)


def _slot_names(kind: type) -> tuple[str, ...]:
    """The attributes that have a place of their own in an object of this class."""
    members = (
        name for base in kind.__mro__ for name, value in vars(base).items() if type(value) is MemberDescriptorType
    )
    return tuple(dict.fromkeys(members))
