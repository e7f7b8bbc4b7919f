"""``ckpt-lint check``: options in, exit status out."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ..analysis.check_file import check_bytes
from ..analysis.check_files import check_paths
from ..analysis.garbage import collection_left_to_exit
from ..analysis.job import STDIN, Job
from ..configs import may_join
from ..output.print_report import CLEAN, FAILURE, FINDINGS, finish, say_failures, write
from ..project.discover import discover
from ..project.settings import SettingsError, describe
from .options import Options, settings_resolver

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..analysis.result import FileResult
    from ..project.settings import Settings

    Jobs = list[Job]
    #: The exit status, and what came out of each file.
    Outcome = tuple[int, list[FileResult]]

_CACHE_FOLDER = ".ckpt_lint_cache"


def run(options: Options) -> int:
    """Do what ``options`` say and return the exit status: 0 clean, 1 findings, 2 a failure of the tool or its input."""
    try:
        settings_for = settings_resolver(options)
        if options.show_settings:
            return _show_settings(_directory(options.paths[0]), settings_for)
        if STDIN in options.paths:
            return _check_stdin(options, settings_for)
        if options.watch:
            from .watch import watch  # start-up: only --watch needs it

            return watch(options.paths, settings_for, lambda: _check_disk(options, settings_for))
        with collection_left_to_exit():
            return _check_disk(options, settings_for)[0]
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILURE


def _show_settings(directory: str, settings_for: Callable[[str], Settings]) -> int:
    from ..project.library_versions import project_ranges  # start-up: only --show-settings needs it

    write(describe(settings_for(directory), project_ranges(os.path.abspath(directory))) + "\n")
    return CLEAN


def _directory(path: str) -> str:
    return path if os.path.isdir(path) else os.path.dirname(path) or "."


def _check_disk(options: Options, settings_for: Callable[[str], Settings]) -> Outcome:
    found = discover(options.paths, settings_for)
    if options.show_files:
        write("".join(f"{path}\n" for path in found.files))
        return (FAILURE if found.missing else CLEAN), []
    for path in found.missing:
        print(f"error: {path}: no such file or folder", file=sys.stderr)
    if not (found.files or found.missing or options.quiet):
        where = " ".join(options.paths)
        print(
            f"warning: nothing to check (Python, notebooks, configurations, launch scripts) in {where}", file=sys.stderr
        )
    named = {*options.paths}
    jobs = [Job(path, settings_for(os.path.dirname(path) or "."), named=path in named) for path in found.files]
    if options.run_configs or may_join(found.files):
        from ..configs.runs import in_runs  # start-up: only runs of several files need it

        jobs, problems = in_runs(jobs, options.run_configs, settings_for, options.paths)
        for problem in problems:
            print(f"error: {problem}", file=sys.stderr)
        if problems:
            return FAILURE, []
        if not jobs:
            print(f"warning: no training that can be read is started in {' '.join(options.paths)}", file=sys.stderr)
    status, results = _mode(options)(jobs, options)
    return FAILURE if found.missing else status, results


def _mode(options: Options) -> Callable[[Jobs, Options], Outcome]:
    if options.add_ignore is not None:
        return _add_ignores
    return _fix if options.fix or options.fix_only or options.diff else _check


def _check(jobs: Jobs, options: Options) -> Outcome:
    results = check_paths(jobs, None if options.no_cache else _CACHE_FOLDER)
    if options.baseline is not None:
        from ..project.baseline import compare  # start-up: only --baseline needs it

        results = compare(options.baseline, results, write=options.write_baseline)
    return finish(results, options), results


def _fix(jobs: Jobs, options: Options) -> Outcome:
    # Start-up: checking alone rewrites nothing.
    from ..fix.files import rewrite_all, unified_diff
    from ..fix.transforms import fixing

    fixed = rewrite_all(jobs, fixing(options.unsafe_fixes), store=not options.diff)
    results = [item.result for item in fixed]
    if not options.diff:
        return finish(results, options, fixed=sum(item.applied.total() for item in fixed)), results
    changed = [item for item in fixed if item.before != item.after]
    for item in changed:
        write(unified_diff(item.result.filename, item.before, item.after))
    return _diff_status(results, bool(changed), options), results


def _add_ignores(jobs: Jobs, options: Options) -> Outcome:
    # Start-up: checking alone rewrites nothing.
    from ..fix.files import rewrite_all
    from ..fix.transforms import ignoring

    ignored = rewrite_all(jobs, ignoring(options.add_ignore or ""), store=True)
    count = sum(item.applied.total() for item in ignored)
    files = sum(bool(item.applied) for item in ignored)
    if not options.quiet:
        print(f"Silenced {count} in {files} file{'' if files == 1 else 's'}.", file=sys.stderr)
    results = [item.result for item in ignored]
    return finish(results, options), results


def _check_stdin(options: Options, settings_for: Callable[[str], Settings]) -> int:
    # Start-up: checking alone rewrites nothing.
    from ..fix.files import rewrite_bytes, unified_diff
    from ..fix.transforms import fixing

    filename = options.stdin_filename or STDIN
    data = sys.stdin.buffer.read()
    job = Job(filename, settings_for(_directory(filename)), named=True)
    if not (options.fix or options.fix_only or options.diff):
        return finish([check_bytes(job, data).result], options, ((filename, data),))
    fixed = rewrite_bytes(job, data, fixing(options.unsafe_fixes))
    if options.diff:
        write(unified_diff(filename, fixed.before, fixed.after))
        return _diff_status([fixed.result], fixed.before != fixed.after, options)
    # The fixed text is the output; what is left to say goes beside it.
    sys.stdout.buffer.write(fixed.after)
    sys.stdout.flush()
    return finish([fixed.result], options, ((filename, fixed.after),), fixed.applied.total(), sys.stderr)


def _diff_status(results: list[FileResult], changed: bool, options: Options) -> int:
    say_failures(results)
    if any(result.failure for result in results):
        return FAILURE
    return FINDINGS if changed and not options.exit_zero else CLEAN
