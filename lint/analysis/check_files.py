"""Many files: what is known already is looked up, one process checks few, several check many.

Results always come in the order of the files, and are the same whatever was chosen.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from ..prefilter.file_gate import GateResult, gate
from .check_file import check_gated, check_path, passed_over
from .garbage import collection_paused
from .result import FileResult

if TYPE_CHECKING:
    from .cache import Cache
    from .job import Job

#: Bytes of text that must be parsed from which on a pool of processes pays for its start (about 100 ms).
POOL_FROM = 2_000_000
#: Number of files from which on looking up old results pays for reading and writing them.
CACHE_FROM = 50


class _Candidate(NamedTuple):
    """A file that has to be analysed."""

    position: int
    job: Job
    data: bytes
    key: str
    gated: GateResult


def check_paths(jobs: list[Job], cache_folder: str | None = None) -> list[FileResult]:
    """Check each file, as a part of the runs that the others start.

    With ``cache_folder``, what was found there before is not looked for again.
    """
    results = _check_each(jobs, cache_folder)
    if any(result.elsewhere for result in results):
        # Start-up: few files show mistakes in others.
        from .cross_file import merge_cross_file

        return merge_cross_file(jobs, results)
    return results


def _check_each(jobs: list[Job], cache_folder: str | None) -> list[FileResult]:
    reported = frozenset(os.path.abspath(job.path) for job in jobs)
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
        # What is known of a file does not say which files it ran with.
        key = cache.key(job.path, data, job.settings, job.named) if cache and not job.runs else ""
        result = cache.get(key, job.path, reported) if cache and key else None
        if result is None:
            gated = gate(job.path, data, job.settings)
            if gated.needed or job.is_joined:
                result = FileResult(job.path, consulted=gated.consulted)
                candidates.append(_Candidate(len(results), job, data, key, gated))
            else:
                result = passed_over(job, gated, data)
                if cache and key:
                    cache.put(key, result, reported)
        results.append(result)
    for candidate, result in zip(candidates, _analyse(candidates, reported), strict=True):
        results[candidate.position] = result
        if cache and candidate.key:
            cache.put(candidate.key, result, reported)
    if cache:
        cache.save()
    return results


def _open_cache(folder: str) -> Cache:
    from .cache import Cache  # start-up: only many files are looked up

    return Cache(folder)


def _analyse(candidates: list[_Candidate], reported: frozenset[str]) -> list[FileResult]:
    processes = min(os.cpu_count() or 1, len(candidates))
    if processes < 2 or sum(len(candidate.data) for candidate in candidates) < POOL_FROM:
        with collection_paused() as pause:
            results = []
            for _, job, data, _, gated in candidates:
                results.append(check_gated(job, data, gated, reported).result)
                pause.analysed(len(data))
            return results
    return _analyse_in_parallel([candidate.job for candidate in candidates], reported, processes)


def _analyse_in_parallel(jobs: list[Job], reported: frozenset[str], processes: int) -> list[FileResult]:
    # Start-up: few runs are large enough for several processes.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # A fork starts ten times faster, but only Linux's is safe beside system libraries that use threads.
    method = "fork" if sys.platform == "linux" else "spawn"
    if method == "fork":
        _import_for_workers()
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(processes, context, initializer=_start_worker, initargs=(reported,)) as pool:
        return list(pool.map(_check_in_worker, jobs, chunksize=max(len(jobs) // (processes * 8), 1)))


def _import_for_workers() -> None:
    """Import once what each of them would import.

    Start-up: a run in one process imports of these what its files need.
    """
    from ..facts.interpreter import program  # noqa: F401
    from ..model import run  # noqa: F401
    from ..model.conditions import versions  # noqa: F401
    from ..project import local_modules  # noqa: F401
    from ..rules import load_rules

    load_rules()


#: Of a worker: the files that are checked in this run, sent once and not with every file.
_reported: frozenset[str] = frozenset()
#: Of a worker: from its start to its end.
_pause = collection_paused()


def _start_worker(reported: frozenset[str]) -> None:
    import signal  # start-up: few runs have workers

    # An interrupt ends a worker at once, and only the parent speaks of it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    global _reported
    _reported = reported
    gc.freeze()
    _pause.__enter__()


def _check_in_worker(job: Job) -> FileResult:
    result = check_path(job, _reported)
    _pause.analysed(os.path.getsize(job.path) if os.path.exists(job.path) else 0)
    return result
