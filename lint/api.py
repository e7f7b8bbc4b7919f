"""The linter as functions: what `from hf_ckpt.lint import check_source, check_paths` gives."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .analysis.check_file import check_loaded
from .analysis.check_files import check_paths as check_jobs
from .analysis.job import Job
from .analysis.result import InternalError
from .configs import may_join
from .project.discover import discover
from .project.settings import Settings, find_settings
from .sources.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .finding import Finding


def check_source(
    text: str,
    filename: str = "<string>",
    *,
    select: Iterable[str] | None = None,
    ignore: Iterable[str] = (),
    versions: Mapping[str, str] | None = None,
) -> list[Finding]:
    """The findings of Python source ``text``, suppressions in comments applied; reads no settings from disk.

    Args:
        text: The source; text that is no Python gives one finding (CKPT903).
        filename: What findings call it.
        select: Codes, prefixes of codes or names of the rules to run; None for those that are on by default.
        ignore: Codes, prefixes or names of rules to leave out.
        versions: The range that each library is used in; one that is missing is taken to be the newest.

    Returns:
        The findings, by place.

    Raises:
        SettingsError: ``select`` or ``ignore`` names an unknown rule.
        InternalError: The analysis itself failed.

    Example:
        >>> from hf_ckpt.lint import check_source
        >>> text = "from torch.utils.checkpoint import checkpoint\\nout = checkpoint(layer, x)\\n"
        >>> [finding.code for finding in check_source(text, versions={"torch": ">=2.4"})]
        ['CKPT101']
    """
    settings = Settings(
        select=None if select is None else tuple(select),
        ignore=tuple(ignore),
        versions=tuple((versions or {}).items()),
    )
    result = check_loaded(Source(filename, text), Job(filename, settings)).result
    if result.failure:
        raise InternalError(result.failure)
    return list(result.findings)


def check_paths(paths: Iterable[str | os.PathLike[str]], *, settings: Settings | None = None) -> list[Finding]:
    """The findings in files and folders.

    Args:
        paths: Files, and folders to search.
        settings: What decides which files are read and which rules run; None for those of the nearest
            ``pyproject.toml`` of each folder.

    Returns:
        The findings, file by file.

    Raises:
        FileNotFoundError: A path does not exist.
        SettingsError: The settings cannot be used.
        InternalError: The analysis itself failed.
    """
    known: dict[str, Settings] = {}

    def settings_for(directory: str) -> Settings:
        return settings or find_settings(directory, known)

    named = [os.fspath(path) for path in paths]
    found = discover(named, settings_for)
    if found.missing:
        raise FileNotFoundError(f"no such file or folder: {', '.join(found.missing)}")
    jobs = [Job(path, settings_for(os.path.dirname(path) or "."), named=path in named) for path in found.files]
    if may_join(found.files):
        from .configs.runs import in_runs  # start-up: only runs of several files need it

        jobs, _ = in_runs(jobs, (), settings_for, named)
    results = check_jobs(jobs)
    failures = [result.failure for result in results if result.failure]
    if failures:
        raise InternalError("; ".join(failures))
    return [finding for result in results for finding in result.findings]
