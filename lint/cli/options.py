"""The command line of ``ckpt-lint check`` as data, and the settings that follow from it and the project's files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ..project.settings import Settings, find_settings, load_settings, version_range

if TYPE_CHECKING:
    from collections.abc import Callable


class Options(NamedTuple):
    """What was asked for."""

    paths: tuple[str, ...] = (".",)
    select: tuple[str, ...] | None = None
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    force_exclude: bool = False
    markdown: bool = False
    notes: bool = False
    #: None leaves it to the settings.
    respect_gitignore: bool | None = None
    config: str | None = None
    #: No file of settings is read.
    isolated: bool = False
    ignore_noqa: bool = False
    #: As given: `transformers=4.51`.
    versions: tuple[str, ...] = ()
    #: Configurations that the scripts run with.
    run_configs: tuple[str, ...] = ()
    stdin_filename: str | None = None
    output_format: str | None = None
    #: Where the report goes; None for standard output.
    output_file: str | None = None
    quiet: bool = False
    #: "auto", "always" or "never".
    color: str = "auto"
    fix: bool = False
    #: Nothing is reported but failures.
    fix_only: bool = False
    exit_non_zero_on_fix: bool = False
    unsafe_fixes: bool = False
    diff: bool = False
    statistics: bool = False
    exit_zero: bool = False
    show_settings: bool = False
    show_files: bool = False
    #: The reason to write behind each comment; None to add none.
    add_ignore: str | None = None
    baseline: str | None = None
    write_baseline: bool = False
    watch: bool = False
    no_cache: bool = False


def settings_resolver(options: Options) -> Callable[[str], Settings]:
    """A function from a directory to the settings of files in it, the command line merged in.

    It raises SettingsError for settings that cannot be used, among them selectors that mean no rule.
    """
    fixed = (
        load_settings(options.config) if options.config else Settings(root=os.getcwd()) if options.isolated else None
    )
    known: dict[str, Settings] = {}
    merged: dict[Settings, Settings] = {}

    def settings_for(directory: str) -> Settings:
        settings = fixed or find_settings(directory, known)
        if settings not in merged:
            merged[settings] = _validated(_merge(settings, options))
        return merged[settings]

    return settings_for


def _merge(settings: Settings, options: Options) -> Settings:
    # As in ruff: a selection on the command line replaces the configured one, what it ignores included.
    ignore = options.ignore if options.select is not None else settings.ignore + options.ignore
    return settings._replace(
        select=options.select if options.select is not None else settings.select,
        extend_select=(() if options.select is not None else settings.extend_select) + options.extend_select,
        ignore_noqa=options.ignore_noqa,
        versions=tuple({**dict(settings.versions), **dict(map(version_range, options.versions))}.items()),
        ignore=ignore,
        exclude=settings.exclude + options.exclude,
        force_exclude=settings.force_exclude or options.force_exclude,
        markdown=settings.markdown or options.markdown,
        notes=settings.notes or options.notes,
        respect_gitignore=settings.respect_gitignore
        if options.respect_gitignore is None
        else options.respect_gitignore,
    )


def _validated(settings: Settings) -> Settings:
    # The rules are loaded only for settings that name some.
    if settings.names_rules:
        from ..project.selection import check_selectors  # start-up: it loads every rule

        check_selectors(settings)
    return settings
