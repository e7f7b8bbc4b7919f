"""Garbage collection while files are analysed.

A syntax tree and its facts are many objects that all live until the file is done, so a collection in between finds
nothing and goes through all of them: that was a third of the time.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Characters of source after which what they left is collected: about 30 bytes for each, 130 MB in all.
_COLLECT_AFTER = 4_000_000


class collection_paused:  # noqa: N801 - a context manager, used like a function
    """No automatic collection inside the `with` block; it is as it was afterwards."""

    __slots__ = ("_analysed", "_was_on")

    def __init__(self) -> None:
        self._analysed = 0

    def __enter__(self) -> collection_paused:
        self._was_on = gc.isenabled()
        gc.disable()
        return self

    def __exit__(self, *_: object) -> None:
        if self._was_on:
            gc.enable()

    def analysed(self, size: int) -> None:
        """Collect now and then; ``size`` characters more have been analysed."""
        self._analysed += size
        if self._analysed > _COLLECT_AFTER:
            self._analysed = 0
            gc.collect()


@contextmanager
def collection_left_to_exit() -> Iterator[None]:
    """No automatic collection in the last work of a process: what it leaves is frozen, and goes when the process does.

    To collect it took 0.19 s of the 2.3 s for the corpus of `tests/benchmarks/lint_speed.py`.
    """
    with collection_paused():
        yield
        gc.freeze()
