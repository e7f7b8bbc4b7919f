"""``--watch``: check again whenever a file changes."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from .discover import discover
from .project_versions import project_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .settings import Settings

#: Seconds between two looks at the files.
INTERVAL = 0.3
_CLEAR = "\033[2J\033[H"


def watch(paths: Iterable[str], settings_for: Callable[[str], Settings], check: Callable[[], int]) -> int:
    """Call ``check`` now and after each change below ``paths``, until interrupted; returns its last status."""
    paths = tuple(paths)
    while True:
        seen = _state(paths, settings_for)
        if sys.stdout.isatty():
            sys.stdout.write(_CLEAR)
        project_ranges.cache_clear()
        status = check()
        print("Watching for changes; stop with Ctrl-C.", file=sys.stderr, flush=True)
        try:
            while _state(paths, settings_for) == seen:
                time.sleep(INTERVAL)
        except KeyboardInterrupt:
            return status


def _state(paths: tuple[str, ...], settings_for: Callable[[str], Settings]) -> dict[str, tuple[int, int]]:
    """Time of change (ns) and size (bytes) of every file that would be checked."""
    state: dict[str, tuple[int, int]] = {}
    for path in discover(paths, settings_for).files:
        try:
            status = os.stat(path)
        except OSError:
            continue
        state[path] = (status.st_mtime_ns, status.st_size)
    return state
