"""A file on disk, replaced atomically and completely, or left exactly as it was."""

from __future__ import annotations

from ...whole_file import write_whole


def replace_file(path: str, before: bytes, after: bytes) -> None:
    """Replace the content of a file, or leave it as it was.

    Args:
        path: The file.
        before: What it must still hold.
        after: What it shall hold.

    Raises:
        OSError: The file cannot be written, or holds something else by now.
    """
    with open(path, "rb") as file:
        if file.read() != before:
            raise OSError("it changed while it was checked")
    write_whole(path, after)
