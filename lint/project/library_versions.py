"""Which library versions a project uses, read from its own files; never from what is installed here.

A pre-commit environment does not see the project's packages, so only the files can tell. In order of weight: the
script's own header (PEP 723), a lock file, ``pyproject.toml``, ``requirements*.txt``, ``environment.yml``. The files
are searched by pattern, not parsed: a clean file would otherwise pay for a TOML parser.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TypeAlias

from ..sources.source import UTF_16

#: Library to version range: {"transformers": ">=5.0,<6"}.
Ranges: TypeAlias = dict[str, str]

_NAMES = "torch|transformers|peft|accelerate|trl|deepspeed"
_SPEC = r"(?:\s*(?:[<>=!~]=?|===)\s*[0-9][\w.*+!-]*\s*,?)+"
# Patterns are text, compiled when a file of their kind is met: compiling all of them takes longer than reading one.
#: `"transformers[torch]>=5.0 ; marker"`, quoted, as in a TOML list of PEP 508 requirements.
_QUOTED = rf"""(?i)["'](?P<name>{_NAMES})\s*(?:\[[^\]]*\])?\s*\(?(?P<spec>{_SPEC})\)?\s*(?:;[^"']*)?["']"""
#: `transformers = "^5.0"` and `transformers = {version = "^5.0", ...}` of Poetry, `transformers = ">=5"` of Pixi.
_KEYED = (
    rf"""(?im)^\s*["']?(?P<name>{_NAMES})["']?\s*=\s*"""
    r"""(?:\{[^}\n]*version\s*=\s*)?["'](?P<spec>[\^~<>=!0-9][^"'\n]*)["']"""
)
#: `name = "transformers"` and the `version` that follows, as uv, Poetry and PDM lock them.
_LOCKED = rf"""(?m)^name = "(?P<name>{_NAMES})"\s*\n(?:[^\[\n]*\n)*?version = "(?P<version>[0-9][^"+]*)"""
#: A line of a requirements file, or an entry of a conda environment.
_LINE = rf"""(?im)^\s*(?:-\s+)?["']?(?P<name>{_NAMES})\s*(?:\[[^\]]*\])?\s*(?P<spec>{_SPEC})"""
_SCRIPT = r"(?m)^# /// script\s*\n(?P<body>(?:#.*\n)*?)# ///\s*$"
_LOCK_FILES = ("uv.lock", "poetry.lock", "pdm.lock")
_LARGEST = 20_000_000


def versions_of(text: str, filename: str) -> Ranges:
    """The versions a script runs with: those of its header, then those of the project it stands in."""
    directory = os.path.dirname(os.path.abspath(filename))
    script = re.search(_SCRIPT, text) if "# /// script" in text else None
    return {**project_ranges(directory), **(_quoted(script["body"]) if script else {})}


@cache
def project_ranges(directory: str) -> Ranges:
    """The ranges said by the files of ``directory``, or of the nearest folder above that says any.

    Remembered for the process; one that lives longer than a run clears the cache.
    """
    found = _ranges_here(directory)
    parent = os.path.dirname(directory)
    if found or parent == directory or os.path.exists(os.path.join(directory, ".git")):
        return found
    return project_ranges(parent)


def _ranges_here(directory: str) -> Ranges:
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return {}
    found: Ranges = {}
    for name in names:
        if name in ("environment.yml", "environment.yaml") or (
            name.startswith("requirements") and name.endswith(".txt")
        ):
            found |= _lines(_read(directory, name))
    if "pyproject.toml" in names:
        text = _read(directory, "pyproject.toml")
        found |= _keyed(text)
        found |= _quoted(text)
    for name in _LOCK_FILES:
        if name in names:
            found |= {m["name"]: f"=={m['version']}" for m in re.finditer(_LOCKED, _read(directory, name))}
    return found


def _read(directory: str, name: str) -> str:
    path = os.path.join(directory, name)
    try:
        if os.path.getsize(path) > _LARGEST:
            return ""
        with open(path, "rb") as file:
            text = _decoded(file.read())
    except OSError:
        return ""
    return text.replace("\r\n", "\n") if "\r" in text else text


def _decoded(data: bytes) -> str:
    """``data`` as text; `pip freeze > requirements.txt` of PowerShell writes UTF-16."""
    if data.startswith(UTF_16):
        return data.decode("utf-16", "replace")
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")


def _quoted(text: str) -> Ranges:
    return {match["name"].lower(): _tidy(match["spec"]) for match in re.finditer(_QUOTED, text)}


def _lines(text: str) -> Ranges:
    return {match["name"].lower(): _tidy(match["spec"]) for match in re.finditer(_LINE, text)}


def _keyed(text: str) -> Ranges:
    return {match["name"].lower(): _poetry(match["spec"].strip()) for match in re.finditer(_KEYED, text)}


def _poetry(spec: str) -> str:
    """Poetry's ``^5.1``, ``~5.1`` and ``5.1.*`` as ranges every tool reads."""
    if spec[0] == "^":
        major, *rest = spec[1:].split(".")
        if major != "0":
            return f">={spec[1:]},<{int(major) + 1}" if major.isdigit() else f">={spec[1:]}"
        minor = int(rest[0]) if rest and rest[0].isdigit() else 0
        return f">={spec[1:]},<0.{minor + 1}"
    if spec[0] == "~" and spec[:2] != "~=":
        return f"~={spec[1:]}" if "." not in spec[1:] else f">={spec[1:]},<{_next(spec[1:])}"
    return f"=={spec}" if spec[0].isdigit() else _tidy(spec)


def _next(version: str) -> str:
    major, minor, *_ = version.split(".")
    return f"{major}.{int(minor) + 1}" if minor.isdigit() else version


def _tidy(spec: str) -> str:
    return "".join(spec.split()).rstrip(",")
