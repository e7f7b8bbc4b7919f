"""Which pieces of a layer a replay alone would make again as the forward did.

A replay runs after the layer. A piece whose modules' attributes somebody sets (a scale that its parent hands on, a
counter of its own) would find the last values. One that writes to its input, or whose input somebody writes to after
it ran, would find other numbers. One that runs elsewhere than in the piece around it frees other bytes than were
counted there. None of them is replayed alone, nor is a piece in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from ..attributes import DEEPEST, MOST_ITEMS, attributes_of
from ..readings import version_of
from .pieces import LAYER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


class Watch:
    """Watches one forward of ``layer``. ``around`` has the name of the piece around each one.

    ``unfit`` are the names of the pieces that must not be replayed alone, complete once the forward has settled.
    """

    def __init__(self, layer: nn.Module, around: Mapping[str, str]) -> None:
        self.unfit: set[str] = set()
        self._around = around
        self._inside = {name: [*layer.get_submodule(name).modules()] for name in around}
        self._before = {module: _state(module) for modules in self._inside.values() for module in modules}
        #: What each run was given: the piece, the tensor, and the tensor's version when the run was over.
        self._given: list[tuple[str, torch.Tensor, int]] = []

    def entered(self, name: str, running: tuple[str, ...], tensors: Iterable[torch.Tensor]) -> Callable[[], None]:
        """A piece starts, of these tensors, inside the pieces ``running``; returns what to call when it is over."""
        if name not in self._around:
            return lambda: None
        if running != self._pieces_around(name):
            self.unfit.add(name)
        self._compare(name)
        given = [(tensor, version_of(tensor)) for tensor in tensors]

        def left() -> None:
            self._compare(name)
            if any(version_of(tensor) != version for tensor, version in given):
                self.unfit.add(name)
            self._given += [(name, _without_history(tensor), version_of(tensor)) for tensor, _ in given]

        return left

    def settle(self) -> None:
        """The forward is over."""
        self.unfit |= {name for name, tensor, version in self._given if version_of(tensor) != version}
        for name in {name for name, _, _ in self._given}:
            self._compare(name)
        self.unfit |= {name for name in self._around if not self.unfit.isdisjoint(self._pieces_around(name))}
        self._given.clear()
        self._before.clear()  # attributes may be large tensors

    def _compare(self, name: str) -> None:
        if name not in self.unfit and any(_state(module) != self._before[module] for module in self._inside[name]):
            self.unfit.add(name)

    def _pieces_around(self, name: str) -> tuple[str, ...]:
        """The pieces around one, the outermost first."""
        outer = self._around[name]
        return () if outer == LAYER else (*self._pieces_around(outer), outer)


class _Itself:
    """Compares what it holds by identity."""

    __slots__ = ("_value",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self._value is other._value


def _without_history(tensor: torch.Tensor) -> torch.Tensor:
    """What shares memory and version with ``tensor``, and keeps no graph alive."""
    if type(tensor) is not torch.Tensor:  # a subclass may make another version count
        return tensor
    with _disable_current_modes():
        return tensor.detach()


def _state(module: nn.Module) -> dict[str, Any]:
    """The attributes of a module that its forward may read, to compare with those at another time."""
    return {name: _mark(value) for name, value in attributes_of(module).items()}


def _mark(value: object, depth: int = 0) -> object:
    match value:
        case None | bool() | int() | float() | complex() | str() | bytes():
            return type(value), value
        case torch.Tensor():
            return _Itself(value), version_of(value)
        case list() | tuple() | set() | frozenset() | dict() if depth == DEEPEST or len(value) > MOST_ITEMS:
            return _Itself(value), len(value)
        case dict():
            return dict, [(_mark(key, depth + 1), _mark(item, depth + 1)) for key, item in value.items()]
        case list() | tuple() | set() | frozenset():
            return type(value), [_mark(item, depth + 1) for item in value]
    return _Itself(value)
