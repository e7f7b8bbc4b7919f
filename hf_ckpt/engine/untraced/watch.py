"""Which pieces of a layer a replay alone would make again as the forward did.

A replay runs after the layer. A piece whose modules' attributes somebody sets (a scale that its parent hands on, a
counter of its own) would find the last values. One that writes to its input, or whose input somebody writes to after
it ran, would find other numbers. One that runs elsewhere than in the piece around it frees other bytes than were
counted there. None of them is replayed alone, nor is a piece in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ..attributes import AttributesBefore
from ..readings import version_of
from .pieces import LAYER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torch import nn


class Watch:
    """Watches one forward of ``layer``. ``around`` has the name of the piece around each one.

    ``unfit`` are the names of the pieces that must not be replayed alone, complete once the forward has settled.
    """

    def __init__(self, layer: nn.Module, around: Mapping[str, str]) -> None:
        self.unfit: set[str] = set()
        self._around = around
        self._before = {name: AttributesBefore(layer.get_submodule(name), copies=False) for name in around}
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
        if name not in self.unfit and not self._before[name].are_current():
            self.unfit.add(name)

    def _pieces_around(self, name: str) -> tuple[str, ...]:
        """The pieces around one, the outermost first."""
        outer = self._around[name]
        return () if outer == LAYER else (*self._pieces_around(outer), outer)


def _without_history(tensor: torch.Tensor) -> torch.Tensor:
    """What shares memory and version with ``tensor``, and keeps no graph alive."""
    if type(tensor) is not torch.Tensor:  # a subclass may make another version count
        return tensor
    with _disable_current_modes():
        return tensor.detach()
