"""A file on disk, replaced atomically and completely, or left exactly as it was."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress


def replace_file(path: str, before: bytes, after: bytes) -> None:
    """Replace the content of a file, or leave it as it was.

    The new content is written beside the file, flushed, given the file's permissions and owner, and renamed over it; a
    symbolic link stays one.

    Args:
        path: The file.
        before: What it must still hold.
        after: What it shall hold.

    Raises:
        OSError: The file cannot be written, or holds something else by now.
    """
    target = os.path.realpath(path)
    with open(target, "rb") as file:
        if file.read() != before:
            raise OSError("it changed while it was checked")
        status = os.fstat(file.fileno())
    handle, temporary = tempfile.mkstemp(prefix=".ckpt-lint-", dir=os.path.dirname(target))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(after)
            file.flush()
            os.fsync(file.fileno())
        with suppress(OSError, AttributeError):  # only root may give files away, and Windows has no owners
            os.chown(temporary, status.st_uid, status.st_gid)
        shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
