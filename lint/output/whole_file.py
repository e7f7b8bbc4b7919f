"""A file that is written whole or not at all: every write of ckpt-lint that somebody may read later."""

from __future__ import annotations

import os
import stat
from contextlib import suppress


def write_whole(path: str, data: bytes) -> None:
    """Write a file so that it holds all of ``data``, or what it held before, at every moment.

    The content is written beside the file, flushed, given the permissions and owner that the file has, and renamed over
    it; a symbolic link stays one. What is no file (a pipe, a terminal, ``/dev/stdout``) is written as it is.

    Args:
        path: The file.
        data: What it shall hold.

    Raises:
        OSError: The file cannot be written.
    """
    if _is_no_file(path):
        with open(path, "wb") as stream:
            stream.write(data)
        return
    target = os.path.realpath(path)
    temporary = os.path.join(os.path.dirname(target), f".ckpt-lint-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if os.path.exists(target):
            _take_owner(target, temporary)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _is_no_file(path: str) -> bool:
    # `> file` behind /dev/stdout is a file, and a new one in its place is not where the shell writes to.
    return os.path.abspath(path).startswith(("/dev/", "/proc/")) or (os.path.exists(path) and not _is_replaced(path))


def _is_replaced(path: str) -> bool:
    return os.path.isfile(path) or os.path.isdir(path)  # a folder is refused by the rename


def _take_owner(target: str, temporary: str) -> None:
    status = os.stat(target)
    with suppress(OSError, AttributeError):  # only root may give files away, and Windows has no owners
        os.chown(temporary, status.st_uid, status.st_gid)
    os.chmod(temporary, stat.S_IMODE(status.st_mode))
