"""Which library versions a project uses, read from its own files; never from what is installed here.

A pre-commit environment does not see the project's packages, so only the files can tell. In order of weight: the
script's own header (PEP 723), what its notebook installs, a lock file, ``pyproject.toml``, ``Pipfile``,
``requirements*.txt``, ``environment.yml``, ``setup.cfg``, ``setup.py``, the metadata of an unpacked distribution; last
the `pip install` of a Dockerfile or a README. A file is parsed only when it names one of the libraries.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from ..sources.source import UTF_16

if TYPE_CHECKING:
    from collections.abc import Callable

#: Library to version range: {"transformers": ">=5.0,<6"}.
Ranges: TypeAlias = dict[str, str]
#: Which names of files, and what reads such a file.
_Kind: TypeAlias = "tuple[Callable[[str], bool], Callable[[str], Ranges]]"

#: What a file must mention to be worth parsing; conda calls torch pytorch.
_NAMED = re.compile(r"torch|transformers|peft|accelerate|trl|deepspeed|ms[-_]swift", re.IGNORECASE)
_SCRIPT = r"(?m)^# /// script\s*\n(?P<body>(?:#.*\n)*?)# ///\s*$"
#: A library and the version that a command gives it.
_PINNED = r"(?:torch|transformers|peft|accelerate|trl|deepspeed)\S*[=<~]=?\s?\d"
#: A magic of a notebook, also as a comment of the script that it was saved as.
_MAGIC = re.compile(rf"[ \t]*(?:pass)?[ \t]*#?[ \t]*[!%].*\bpip3?[ \t]+install .*{_PINNED}.*$")
_INSTALL = re.compile(rf"pip3? install (?:[^\\\n]|\\\n)*{_PINNED}")
_ENVIRONMENT = re.compile(r"(?:environment|conda)[\w.-]*\.ya?ml")
_LOCK_FILES = ("uv.lock", "poetry.lock", "pdm.lock")
_LARGEST = 20_000_000


def versions_of(text: str, filename: str) -> Ranges:
    """The versions a script runs with: those of its header, then those of the project it stands in."""
    directory = os.path.dirname(os.path.abspath(filename))
    script = re.search(_SCRIPT, text) if "# /// script" in text else None
    says = "pip install" in text or "pip3 install" in text
    lines = [line for line in text.splitlines() if "install " in line and _MAGIC.match(line)] if says else []
    installed = _by("in_commands")("\n".join(lines)) if lines else {}
    return {**project_ranges(directory), **installed, **(_header(script["body"]) if script else {})}


@cache
def project_ranges(directory: str) -> Ranges:
    """The ranges said by the files of ``directory``, or of the nearest folder above that says any.

    Remembered for the process; one that lives longer than a run clears the cache.
    """
    names = _names(directory)
    found = _metadata(directory, names) | _said(directory, names, _KINDS)
    mentioned = _said(directory, names, _COMMANDS)
    parent = os.path.dirname(directory)
    if found or parent == directory or ".git" in names:
        return mentioned | found
    return mentioned | project_ranges(parent)


def _said(directory: str, names: list[str], kinds: tuple[_Kind, ...]) -> Ranges:
    found: Ranges = {}
    for is_such, read in kinds:
        for name in filter(is_such, names):
            text = _read(directory, name)
            if _NAMED.search(text):
                found |= read(text)
    return found


def _metadata(directory: str, names: list[str]) -> Ranges:
    """What the one distribution that was unpacked here requires; a place with several is an installation."""
    unpacked = [name for name in names if name.endswith((".dist-info", ".egg-info"))]
    if len(unpacked) != 1:
        return {}
    inner = os.path.join(directory, unpacked[0])
    return _said(inner, _names(inner), ((lambda name: name in ("METADATA", "PKG-INFO"), _by("in_metadata")),))


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _header(body: str) -> Ranges:
    from .pins import in_toml  # start-up: few scripts have a header

    return in_toml("".join(line.removeprefix("#").removeprefix(" ") for line in body.splitlines(keepends=True)))


def _by(reader: str) -> Callable[[str], Ranges]:
    """The function of that name; what reads files is loaded when one names a library."""

    def read(text: str) -> Ranges:
        from . import pins  # start-up: the parsers of TOML, YAML and requirements

        found: Ranges = getattr(pins, reader)(text)
        return found

    return read


def _fixed(text: str) -> Ranges:
    """What the commands in ``text`` install, when one gives a library a version."""
    return _by("in_commands")(text) if _INSTALL.search(text) else {}


#: Which files say versions and what reads them; the later ones weigh more.
_KINDS: tuple[_Kind, ...] = (
    (lambda name: name == "setup.py", _by("in_setup")),
    (lambda name: name == "setup.cfg", _by("in_setup_config")),
    (lambda name: _ENVIRONMENT.fullmatch(name) is not None, _by("in_environment")),
    (lambda name: "requirement" in name and name.endswith(".txt"), _by("in_requirements")),
    (lambda name: name == "Pipfile", _by("in_toml")),
    (lambda name: name == "pyproject.toml", _by("in_toml")),
    (lambda name: name in _LOCK_FILES, _by("in_lock")),
)

#: What weighs less than any of them, and hides none of a folder above.
_COMMANDS: tuple[_Kind, ...] = (
    (lambda name: name.lower() in ("readme.md", "readme.rst", "readme.txt", "readme"), _fixed),
    (lambda name: name == "Dockerfile", _fixed),
)


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
