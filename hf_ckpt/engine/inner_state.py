"""State that an object keeps where no attribute shows it: random number generators, NumPy arrays.

A layer may hold one (dropout with a ``torch.Generator`` of its own). Its forward changes what is in there, and a replay
must find what the forward found.
"""

from __future__ import annotations

import random
import sys
from functools import lru_cache
from types import SimpleNamespace
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
    return InnerState(value, access)


@lru_cache(maxsize=1024)
def _access_to(kind: type) -> _Access | None:
    if kind is torch.Generator:
        return torch.Generator.get_state, _set_state
    if issubclass(kind, random.Random) and not issubclass(kind, random.SystemRandom):
        return random.Random.getstate, random.Random.setstate
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
    """Whether it is a NumPy array."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray


def _set_state(generator: torch.Generator, state: torch.Tensor) -> None:
    generator.set_state(state)


def _are_equal(one: Any, other: Any) -> bool:
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
    if root == __package__.partition(".")[0] or root in sys.stdlib_module_names:
        return False
    module = sys.modules.get(root)
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    return not any(_LIBRARIES.intersection(str(place).replace("\\", "/").split("/")) for place in places)
