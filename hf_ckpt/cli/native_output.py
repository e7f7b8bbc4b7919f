"""Keeps what native code prints off stdout, which is for a command's answer."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_STDOUT = 1


@contextmanager
def no_native_output() -> Iterator[None]:
    """Drop what is written to the process's stdout in the block.

    HiGHS, which solves the plans, prints a line for debugging now and then (HighsMipSolverData.cpp), whatever its
    options say: no JSON could be read with it.
    """
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    try:
        kept = os.dup(_STDOUT)
    except OSError:  # stdout is closed
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, _STDOUT)
    os.close(nowhere)
    try:
        yield
    finally:
        _flush()
        os.dup2(kept, _STDOUT)
        os.close(kept)


def _flush() -> None:
    """Write out what C's stdio holds back: a pipe gets it when the process ends."""
    with suppress(OSError, TypeError):  # Windows has no library of the process itself
        ctypes.CDLL(None).fflush(None)
