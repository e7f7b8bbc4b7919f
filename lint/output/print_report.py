"""The end of a run: print the report, say what failed, choose the exit status."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

from ..project.settings import SettingsError

if TYPE_CHECKING:
    from ..analysis.result import FileResult
    from ..cli.options import Options
    from .report import Report

CLEAN, FINDINGS, FAILURE = 0, 1, 2


def finish(
    results: list[FileResult],
    options: Options,
    contents: tuple[tuple[str, bytes], ...] = (),
    fixed: int = 0,
    stream: TextIO | None = None,
) -> int:
    """Print what came out of all files.

    Args:
        results: What came out of each file.
        options: The options of the command line.
        contents: Texts by file name that cannot be read again from disk.
        fixed: How many fixes were applied.
        stream: Where to print; None for standard output.

    Returns:
        The exit status.
    """
    stream = stream or sys.stdout
    say_failures(results)
    if options.fix_only:
        results = [result._replace(findings=()) for result in results]
    found = any(result.findings for result in results)
    failed = any(result.failure for result in results)
    if not (found or failed or fixed or options.statistics) and options.output_format in (None, "full", "concise"):
        # The clean path: no format is loaded to say one sentence.
        text = "All checks passed!" if results and not options.quiet else ""
    else:
        from .report import build_report  # start-up: a clean run has no report

        report = build_report(results, contents)._replace(fixed=fixed, quiet=options.quiet)
        text = _rendered(report, options, _use_color(stream, options))
    _put(f"{text}\n" if text else "", options, stream)
    if failed:
        return FAILURE
    changed = fixed and options.exit_non_zero_on_fix
    return FINDINGS if changed or (found and not options.exit_zero) else CLEAN


def _put(text: str, options: Options, stream: TextIO) -> None:
    """Write the report where it is wanted."""
    if options.output_file is None:
        write(text, stream)
        return
    from ...whole_file import write_whole  # start-up: only --output-file needs it

    try:
        write_whole(options.output_file, text.encode(errors="backslashreplace"))
    except OSError as error:
        raise SettingsError(f"{options.output_file}: cannot be written: {error.strerror}") from error


def say_failures(results: list[FileResult]) -> None:
    """One line on standard error for each file that could not be checked or fixed."""
    for result in results:
        if result.failure:
            print(f"error: {result.failure}", file=sys.stderr)


def _rendered(report: Report, options: Options, color: bool) -> str:
    if options.statistics:
        from .statistics import render_statistics  # start-up: only --statistics needs it

        return render_statistics(report, as_json=options.output_format == "json")
    from .formats import DEFAULT_FORMAT, render  # start-up: a clean run has no report

    return render(report, options.output_format or DEFAULT_FORMAT, color)


def _use_color(stream: TextIO, options: Options) -> bool:
    """What ``--color`` says; else colors on a terminal, as ``NO_COLOR`` and ``FORCE_COLOR`` want them."""
    if options.color != "auto" or options.output_file is not None:
        return options.color == "always"
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def write(text: str, stream: TextIO | None = None) -> None:
    """Print ``text`` as it is, at once."""
    stream = stream or sys.stdout
    stream.write(text)
    stream.flush()
