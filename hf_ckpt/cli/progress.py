"""What a command is busy with, on stderr, where that is a terminal."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line that is gone when the block ends; call what it gives with what is done now."""
    with Console(stderr=True).status("reading the config") as status:
        yield lambda text: status.update(escape(text))
