"""Many files: what is known already is looked up, one process checks few, several check many.

Results always come in the order of the files, and are the same whatever was chosen.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from .session import FileResult, check_bytes, check_path, may_have_findings

if TYPE_CHECKING:
    from .cache import Cache
    from .settings import Settings

#: Bytes of text that must be parsed from which on a pool of processes pays for its start (about 100 ms).
POOL_FROM = 2_000_000
#: Number of files from which on looking up old results pays for reading and writing them.
CACHE_FROM = 50


class Job(NamedTuple):
    """A file to check."""

    path: str
    settings: Settings


class _Candidate(NamedTuple):
    """A file that has to be analysed."""

    position: int
    job: Job
    data: bytes
    key: str


def check_paths(jobs: list[Job], cache_folder: str | None = None) -> list[FileResult]:
    """Check each file; with ``cache_folder``, what was found there before is not looked for again."""
    cache = _open_cache(cache_folder) if cache_folder is not None and len(jobs) >= CACHE_FROM else None
    results: list[FileResult] = []
    candidates: list[_Candidate] = []
    for job in jobs:
        try:
            with open(job.path, "rb") as file:
                data = file.read()
        except OSError as error:
            results.append(FileResult(job.path, failure=f"{job.path}: cannot be read: {error.strerror or error}"))
            continue
        key = cache.key(job.path, data, job.settings) if cache else ""
        known = cache.get(key, job.path) if cache else None
        result = known or FileResult(job.path)
        if known is None and may_have_findings(data):
            candidates.append(_Candidate(len(results), job, data, key))
        elif known is None and cache:
            cache.put(key, result)
        results.append(result)
    for candidate, result in zip(candidates, _analyse(candidates), strict=True):
        results[candidate.position] = result
        if cache:
            cache.put(candidate.key, result)
    if cache:
        cache.save()
    return results


def _open_cache(folder: str) -> Cache:
    from .cache import Cache

    return Cache(folder)


def _analyse(candidates: list[_Candidate]) -> list[FileResult]:
    processes = min(os.cpu_count() or 1, len(candidates))
    if processes < 2 or sum(len(candidate.data) for candidate in candidates) < POOL_FROM:
        return [check_bytes(job.path, data, job.settings) for _, job, data, _ in candidates]
    import multiprocessing

    # A fork starts ten times faster, but only Linux's is safe beside system libraries that use threads.
    method = "fork" if sys.platform == "linux" else "spawn"
    jobs = [candidate.job for candidate in candidates]
    with multiprocessing.get_context(method).Pool(processes, initializer=_leave_interrupts_to_the_parent) as pool:
        return pool.starmap(check_path, jobs, chunksize=max(len(jobs) // (processes * 8), 1))


def _leave_interrupts_to_the_parent() -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
