"""A file that is written whole or not at all."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .errors import CkptError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A file of the same suffix to write to, renamed to ``path`` at the end and removed after any exception.

    What is there and no file (a device such as ``/dev/null``, a pipe) is written to itself, never replaced.

    Raises:
        OSError: ``path`` cannot be written.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    target = path.resolve()  # a symbolic link stays one
    temporary = target.with_name(f".{target.stem}-{os.getpid()}-{secrets.token_hex(4)}{target.suffix}")
    try:
        yield temporary
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_whole(path: Path, text: str) -> None:
    """Write a text, whole or not at all.

    Raises:
        CkptError: ``path`` cannot be written.
    """
    try:
        with written_whole(path) as file:
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CkptError(f"{path} cannot be written: {error.strerror or error}") from error
