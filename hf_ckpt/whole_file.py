"""A file that is written whole or not at all. Needs the standard library alone: the linter writes with it too."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


#: How the names of files begin that are being written.
PREFIX = ".hf-ckpt-"


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[str]:
    """A file of the same suffix to write to; it takes the place of ``path`` at the end, and is removed on an exception.

    It gets the permissions and the owner that ``path`` has; a symbolic link stays one. What is no file (a pipe, a
    terminal, ``/dev/stdout``) is written to itself, never replaced.

    Args:
        path: The file to write.

    Yields:
        The name of the file to write to.

    Raises:
        OSError: ``path`` cannot be written.
    """
    path = os.fspath(path)
    if _is_no_file(path):
        yield path
        return
    target = os.path.realpath(path)
    if os.path.islink(target):  # what leads back to itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    # All begin alike, so that one that a killed process left is known for what it is.
    name = f"{PREFIX}{os.getpid()}-{os.urandom(4).hex()}{os.path.splitext(target)[1]}"
    temporary = os.path.join(os.path.dirname(target), name)
    try:
        yield temporary
        _store(temporary)
        if os.path.exists(target):
            _take_owner(target, temporary)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file so that it holds all of ``data``, or what it held before, at every moment.

    Args:
        path: The file.
        data: What it shall hold.

    Raises:
        OSError: The file cannot be written.
    """
    with written_whole(path) as name, open(name, "wb") as file:
        file.write(data)


def _is_no_file(path: str) -> bool:
    # `> file` behind /dev/stdout is a file, and a new one in its place is not where the shell writes to.
    is_open_already = os.path.abspath(path).startswith(("/dev/std", "/dev/fd/", "/proc/"))
    return is_open_already or (os.path.exists(path) and not _is_replaced(path))


def _is_replaced(path: str) -> bool:
    return os.path.isfile(path) or os.path.isdir(path)  # a folder is refused by the rename


def _store(path: str) -> None:
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def _take_owner(target: str, temporary: str) -> None:
    status = os.stat(target)
    with suppress(OSError, AttributeError):  # only root may give files away, and Windows has no owners
        os.chown(temporary, status.st_uid, status.st_gid)
    os.chmod(temporary, stat.S_IMODE(status.st_mode))
