"""``--watch``: check again whenever a file changes."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from ..project.discover import discover
from ..project.library_versions import project_ranges
from ..project.local_modules import unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..analysis.result import FileResult
    from ..project.settings import Settings

    #: Time of change (ns) and size (bytes) by path; None for a file that is not there.
    Stamps = dict[str, tuple[int, int] | None]

#: Seconds between two looks at the files.
INTERVAL = 0.3
_CLEAR = "\033[2J\033[H"


def watch(
    paths: Iterable[str],
    settings_for: Callable[[str], Settings],
    check: Callable[[], tuple[int, list[FileResult]]],
) -> int:
    """Check now and after each change, until interrupted.

    A change is one below ``paths``, or in a file that the last check read beside them: a local module that a script
    imports (also one that did not exist yet), a configuration, a script that a launch script starts.

    Args:
        paths: Files and folders to look at.
        settings_for: The settings that hold in a folder.
        check: Checks and reports; gives the exit status and what came out of each file.

    Returns:
        The last exit status.
    """
    paths = tuple(paths)
    while True:
        seen = _stamps(discover(paths, settings_for).files)
        if sys.stdout.isatty():
            sys.stdout.write(_CLEAR)
        project_ranges.cache_clear()
        status, results = check()
        consulted = {path: digest for result in results for path, digest in result.consulted}
        others = _stamps([*consulted, *(result.filename for result in results)])
        print("Watching for changes; stop with Ctrl-C.", file=sys.stderr, flush=True)
        try:
            # A module may have changed between its reading and its stamp.
            same = unchanged(consulted)
            while same:
                time.sleep(INTERVAL)
                same = _stamps(discover(paths, settings_for).files) == seen and _stamps(others) == others
        except KeyboardInterrupt:
            return status


def _stamps(files: Iterable[str]) -> Stamps:
    stamps: Stamps = {}
    for path in files:
        try:
            status = os.stat(path)
        except OSError:
            stamps[path] = None
        else:
            stamps[path] = (status.st_mtime_ns, status.st_size)
    return stamps
