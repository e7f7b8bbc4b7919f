"""``[tool.ckpt-lint]`` in ``pyproject.toml``: found, read, checked and merged with the command line."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


_SECTION = b"ckpt-lint"


class SettingsError(Exception):
    """Settings that cannot be used; ``str()`` says what is wrong, where, and what to do."""


class Settings(NamedTuple):
    """What decides which files are read and which findings are reported."""

    #: Codes, code prefixes or names; None means every rule that is on by default.
    select: tuple[str, ...] | None = None
    #: Selected besides ``select``, or besides the rules that are on by default.
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    #: Comments that silence findings do not count: not a setting of the project, but said on the command line.
    ignore_noqa: bool = False
    #: Pairs of a path pattern and what to ignore in files that match it.
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    exclude: tuple[str, ...] = ()
    #: Excludes hold for files named on the command line too.
    force_exclude: bool = False
    #: Folders are searched for Markdown too; a document that is named is read anyway.
    markdown: bool = False
    #: What is a mistake only under a condition that the program leaves open is reported too.
    notes: bool = False
    #: What git ignores is not looked at in folders.
    respect_gitignore: bool = True
    #: Library to version range, as in ``{"transformers": ">=5.23"}``.
    versions: tuple[tuple[str, str], ...] = ()
    #: The directory that patterns are relative to.
    root: str = "."
    #: The file the settings were read from; None for the defaults.
    origin: str | None = None

    @property
    def selects(self) -> bool:
        """Whether rules are named that run: those that are off by default may be among them."""
        return self.select is not None or bool(self.extend_select)

    @property
    def names_rules(self) -> bool:
        """Whether anything but the default rules is asked for."""
        return self.selects or bool(self.ignore or self.per_file_ignores)


#: The keys of the section and the type each must have.
_KEYS: dict[str, str] = {
    "select": "list",
    "extend-select": "list",
    "ignore": "list",
    "exclude": "list",
    "per-file-ignores": "lists",
    "versions": "strings",
    "force-exclude": "bool",
    "markdown": "bool",
    "notes": "bool",
    "respect-gitignore": "bool",
}


def load_settings(path: str) -> Settings:
    """Read the settings in a TOML file: its ``[tool.ckpt-lint]``, or the whole file if it has no ``[tool]``.

    Raises:
        SettingsError: The file at ``path`` cannot be read, or has a key or a value that is no setting.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error
    table = _parse(path, data)
    tool = table.get("tool")
    section = tool.get("ckpt-lint", {}) if isinstance(tool, dict) else table
    if not isinstance(section, dict):
        raise SettingsError(f"{path}: `tool.ckpt-lint` must be a table")
    return _from_table(path, section)


def find_settings(directory: str, known: dict[str, Settings]) -> Settings:
    """The settings for the files in a folder: those of the nearest ``pyproject.toml`` with our section.

    Args:
        directory: The folder.
        known: Remembers the answer for every folder on the way, so that each is looked at once.

    Raises:
        SettingsError: The settings that were found cannot be used.
    """
    directory = os.path.abspath(directory)
    found = known.get(directory)
    if found is None:
        path = os.path.join(directory, "pyproject.toml")
        if _has_section(path):
            found = load_settings(path)
        else:
            parent = os.path.dirname(directory)
            found = Settings(root=os.getcwd()) if parent == directory else find_settings(parent, known)
        known[directory] = found
    return found


def _has_section(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return False
    # The TOML parser is loaded only for a file that mentions us outside a list of dependencies.
    return _SECTION in data and b"tool" in data and "ckpt-lint" in _parse(path, data).get("tool", {})


def _parse(path: str, data: bytes) -> dict[str, Any]:
    import tomllib  # start-up: few projects have settings of ours

    try:
        return tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from error


def _from_table(path: str, section: dict[str, Any]) -> Settings:
    for key, value in section.items():
        kind = _KEYS.get(key)
        if kind is None:
            raise SettingsError(f"{path}: unknown key `{key}` in [tool.ckpt-lint]{_suggestion(key, _KEYS)}")
        _check_kind(path, key, kind, value)
    _check_ranges(path, section.get("versions", {}))
    return Settings(
        select=tuple(section["select"]) if "select" in section else None,
        extend_select=tuple(section.get("extend-select", ())),
        ignore=tuple(section.get("ignore", ())),
        per_file_ignores=tuple((k, tuple(v)) for k, v in section.get("per-file-ignores", {}).items()),
        exclude=tuple(section.get("exclude", ())),
        force_exclude=section.get("force-exclude", False),
        markdown=section.get("markdown", False),
        notes=section.get("notes", False),
        respect_gitignore=section.get("respect-gitignore", True),
        versions=tuple(section.get("versions", {}).items()),
        root=os.path.dirname(os.path.abspath(path)),
        origin=path,
    )


def _check_kind(path: str, key: str, kind: str, value: object) -> None:
    def is_list(item: object) -> bool:
        return isinstance(item, list) and all(isinstance(entry, str) for entry in item)

    match kind:
        case "list":
            good, wanted = is_list(value), "a list of strings"
        case "lists":
            good = isinstance(value, dict) and all(map(is_list, value.values()))
            wanted = 'a table of lists, such as {"tests/**" = ["CKPT4"]}'
        case "strings":
            good = isinstance(value, dict) and all(isinstance(entry, str) for entry in value.values())
            wanted = 'a table of version ranges, such as {transformers = ">=5.23"}'
        case _:
            good, wanted = isinstance(value, bool), "true or false"
    if not good:
        raise SettingsError(f"{path}: `{key}` in [tool.ckpt-lint] must be {wanted}, not {value!r}")


def _check_ranges(path: str, versions: dict[str, str]) -> None:
    for library, spec in versions.items():
        if not _is_range(spec):
            raise SettingsError(
                f"{path}: `versions.{library}` in [tool.ckpt-lint] must be a version range, "
                f'such as ">=4.40,<5" or "==4.40.*", not "{spec}"'
            )


def _is_range(spec: str) -> bool:
    """Whether ``spec`` is a PEP 440 range; nothing, or a star, means any version."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # start-up: only where versions are set

    try:
        SpecifierSet("" if spec.strip() == "*" else spec)
    except InvalidSpecifier:
        return False
    return True


def version_range(given: str) -> tuple[str, str]:
    """The library and the range of ``--versions``.

    Args:
        given: ``transformers=4.51`` for any 4.51, or ``transformers>=4.40,<5`` for a range.

    Raises:
        SettingsError: It is neither of the two.
    """
    end = next((index for index, char in enumerate(given) if char in "<>=!~"), len(given))
    library, spec = given[:end].strip(), given[end:].strip()
    if spec[:1] == "=" and spec[1:2].isdigit():
        spec = f"={spec}" if spec.count(".") > 1 else f"={spec}.*"
    if not library or not spec or not _is_range(spec):
        raise SettingsError(
            f"--versions takes a library and its version or range, such as transformers=4.51, not `{given}`"
        )
    return library, spec


def _suggestion(word: str, known: dict[str, str]) -> str:
    import difflib  # start-up: only a misspelt key needs it

    close = difflib.get_close_matches(word, known, 1)
    return f"; did you mean `{close[0]}`?" if close else f"; known keys: {', '.join(known)}"


def describe(settings: Settings, found: Mapping[str, str]) -> str:
    """The settings as ``--show-settings`` prints them; ``found`` are the versions said by the project's files."""
    versions = {**found, **dict(settings.versions)}
    rows = {
        "read from": settings.origin or "defaults (no [tool.ckpt-lint] found)",
        "root": settings.root,
        "select": "default rules" if settings.select is None else ", ".join(settings.select),
        "extend-select": ", ".join(settings.extend_select) or "nothing",
        "ignore": ", ".join(settings.ignore) or "nothing",
        "per-file-ignores": "; ".join(f"{k}: {', '.join(v)}" for k, v in settings.per_file_ignores) or "nothing",
        "exclude": ", ".join(settings.exclude) or "nothing beyond the defaults",
        "force-exclude": "true" if settings.force_exclude else "false",
        "markdown": "true" if settings.markdown else "false",
        "notes": "true" if settings.notes else "false",
        "respect-gitignore": "true" if settings.respect_gitignore else "false",
        "versions": ", ".join(f"{k}{v}" for k, v in versions.items()) or "the newest: the project's files say none",
    }
    return "\n".join(f"{key}: {value}" for key, value in rows.items())
