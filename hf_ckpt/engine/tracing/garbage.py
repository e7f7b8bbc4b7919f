"""No garbage collection while a layer is traced.

A trace makes very many objects in a short time: symbols, expressions, fake tensors. Python would look through them, and
through what the libraries and the model made, again and again.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def collections_after() -> Iterator[None]:
    """Inside, Python collects nothing by itself; it is as it was when the block ends."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
