"""Fixes to files on disk: replaced atomically and completely, or left exactly as they were."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ..analysis.check_file import FileResult, InternalError, check, check_bytes
from ..project.local_modules import LocalModules
from ..sources.source import Source, SourceError, read_source
from .apply import fix_source

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..finding import Finding
    from ..project.settings import Settings


class Fixed(NamedTuple):
    """One file after ``--fix``."""

    #: What is left to report.
    result: FileResult
    before: bytes
    #: Equal to ``before`` when nothing was fixed.
    after: bytes
    applied: Counter[str]


def fix_bytes(filename: str, data: bytes, settings: Settings, unsafe: bool, reported: Collection[str] = ()) -> Fixed:
    """The fixed content of ``filename`` and the findings that are left in it. Touches no disk.

    Of ``reported`` modules the result says what the file makes a mistake in them.
    """

    def check_again(source: Source) -> list[Finding]:
        return check(source, settings, LocalModules(filename))

    before = check_bytes(filename, data, settings, reported)
    if before.failure or not any(finding.fix for finding in before.findings):
        return Fixed(before, data, data, Counter())
    try:
        outcome = fix_source(read_source(filename, data), check_again, unsafe)
    except (SourceError, InternalError) as error:
        return Fixed(before._replace(failure=f"{filename}: not fixed: {error}"), data, data, Counter())
    if outcome.problem:
        return Fixed(before._replace(failure=f"{filename}: not fixed: {outcome.problem}"), data, data, Counter())
    if outcome.data is None:
        return Fixed(before, data, data, Counter())
    return Fixed(check_bytes(filename, outcome.data, settings, reported), data, outcome.data, outcome.applied)


def fix_path(path: str, settings: Settings, unsafe: bool, store: bool, reported: Collection[str] = ()) -> Fixed:
    """Fix the file at ``path``; with ``store`` write it back. A failure is in the result, nothing is raised."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        result = FileResult(path, failure=f"{path}: cannot be read: {error.strerror or error}")
        return Fixed(result, b"", b"", Counter())
    fixed = fix_bytes(path, data, settings, unsafe, reported)
    return stored(fixed, settings, reported) if store else fixed


def stored(fixed: Fixed, settings: Settings, reported: Collection[str] = ()) -> Fixed:
    """``fixed`` after it was written back; as the file was, with the cause, when that failed."""
    path = fixed.result.filename
    if fixed.after == fixed.before:
        return fixed
    try:
        replace_file(path, fixed.before, fixed.after)
    except OSError as error:
        unfixed = check_bytes(path, fixed.before, settings, reported)
        return Fixed(unfixed._replace(failure=f"{path}: not fixed: {error}"), fixed.before, fixed.before, Counter())
    return fixed


def ignore_path(path: str, settings: Settings, reason: str, reported: Collection[str] = ()) -> Fixed:
    """Silence the findings in the file at ``path`` by comments in it. A failure is in the result."""
    from ..suppressions.add_ignore import add_ignores

    try:
        with open(path, "rb") as file:
            data = file.read()
        result = check_bytes(path, data, settings, reported)
        if not result.findings:
            return Fixed(result, data, data, Counter())
        source = read_source(path, data)
        after = add_ignores(source, check(source, settings, LocalModules(path)), reason)
        left = check_bytes(path, after, settings, reported)
        silenced = _codes(result) - _codes(left)
        if not silenced:
            return Fixed(result, data, data, Counter())
        replace_file(path, data, after)
    except (OSError, SourceError) as error:
        return Fixed(FileResult(path, failure=f"{path}: not changed: {error}"), b"", b"", Counter())
    return Fixed(left, data, after, silenced)


def _codes(result: FileResult) -> Counter[str]:
    return Counter(finding.code for finding in result.findings)


def replace_file(path: str, before: bytes, after: bytes) -> None:
    """Store ``after`` in ``path`` if that still holds ``before``. Raises OSError, and the file is then as it was.

    The new content is written beside the file, flushed, given the file's permissions and owner, and renamed over it; a
    symbolic link stays one.
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


def unified_diff(filename: str, before: bytes, after: bytes) -> str:
    """The change as a unified diff, empty when there is none."""
    import difflib

    def lines(data: bytes) -> list[str]:
        return data.decode("utf-8", "replace").splitlines(keepends=True)

    diff = difflib.unified_diff(lines(before), lines(after), filename, filename)
    return "".join(line if line.endswith(("\n", "\r")) else f"{line}\n\\ No newline at end of file\n" for line in diff)
