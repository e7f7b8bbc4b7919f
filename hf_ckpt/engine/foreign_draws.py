"""Draws from Python's and NumPy's random numbers, which a replay makes again from where its forward made them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakSet

from .random_state import foreign_random_state, foreign_random_state_kept, have_drawn, set_foreign_random_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from torch import nn

#: Modules whose first forward drew nothing: to look takes a tenth of a millisecond.
_draw_nothing: WeakSet[nn.Module] = WeakSet()


class ForeignDraws:
    """The draws of one forward of ``module``, for all replays of that forward.

    A module whose first forward drew nothing is not looked at again.
    """

    __slots__ = ("_module", "_states")

    def __init__(self, module: nn.Module | None) -> None:
        self._module = module
        self._states: Mapping[str, Any] | None = None

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note from where the forward draws."""
        if self._module is None or self._module in _draw_nothing:
            yield
            return
        before = foreign_random_state()
        yield
        if have_drawn(before):
            self._states = before
        else:
            _draw_nothing.add(self._module)

    @contextmanager
    def repeated(self) -> Iterator[None]:
        """Let a replay draw from there, and put the generators back."""
        if self._states is None:
            yield
            return
        with foreign_random_state_kept():
            set_foreign_random_state(self._states)
            yield
