"""The settings that `hydra.main` gives to a script: a file, those that its `defaults` name, what the command says."""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import TYPE_CHECKING

from ..facts.objects.dicts import merge_deeply
from ..facts.objects.dotted_words import put, value_said
from ..facts.values import UNKNOWN, Const, Dict, Seq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..facts.values import Value
    from .document import Document

_MAIN = re.compile(r"\bhydra\b")
_PATH = re.compile(r"""\bconfig_path\s*=\s*["']([\w./-]+)["']""")
_NAME = re.compile(r"""\bconfig_name\s*=\s*["']([\w./-]+)["']""")
_PACKAGE = re.compile(r"\A(?:\s*#[^\n]*\n)*?\s*#\s*@package\s+(\S+)")
_NAMED = re.compile(r"--config-name=([\w./-]+)\Z")
#: How many files are looked at for what they speak of.
_MOST = 500
#: A file names others that name others.
_DEPTH = 4


class _OpenError(Exception):
    """What the settings are is not known."""


def primary_file(script: str, text: str) -> str | None:
    """The file that `hydra.main` in the script reads first; None where the script does not say it."""
    name, path = _NAME.search(text), _PATH.search(text)
    if _MAIN.search(text) is None or name is None:
        return None
    folder = os.path.join(os.path.dirname(script), path[1] if path is not None else "")
    found = os.path.normpath(os.path.join(folder, _with_suffix(name[1])))
    return found if os.path.isfile(found) else None


def files_below(primary: str) -> Iterator[str]:
    """The files that ``primary`` may name, and itself, of a large folder the first."""
    return islice(_yaml_below(os.path.dirname(primary) or "."), _MOST)


def _yaml_below(top: str) -> Iterator[str]:
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith(".yaml"))


def composed(primary: str, command: Seq, load: Callable[[str], Document | None]) -> Dict | None:
    """The settings with which the script runs; None where the files and the command do not decide all of it.

    Args:
        primary: The file that `hydra.main` names.
        command: The words of the command.
        load: Gives a file of settings; None for one that cannot be read.
    """
    folder = os.path.dirname(primary)
    try:
        chosen, said = _overrides(folder, command)
        name = chosen.pop("--config-name", os.path.basename(primary))
        made = _Files(load, folder, chosen).read(name, "", _DEPTH)
    except _OpenError:
        return None
    for path, value in said:
        put(made, path, value)
    return made


def _overrides(folder: str, command: Seq) -> tuple[dict[str, str], list[tuple[list[str], Value]]]:
    """The files that the words of a command choose, by the name of their folder, and the values that they set."""
    chosen: dict[str, str] = {}
    said: list[tuple[list[str], Value]] = []
    for word in command.items:
        text = word.value if isinstance(word, Const) else None
        named = _NAMED.match(text) if isinstance(text, str) else None
        if named is not None:
            chosen["--config-name"] = named[1]
            continue
        name, equal, value = text.lstrip("+").partition("=") if isinstance(text, str) else ("", "", "")
        if command.open or not equal or not all(map(str.isidentifier, name.replace("/", ".").split("."))):
            raise _OpenError  # `~name`, `--multirun`, `group@package=name`, or words that only the shell knows.
        if os.path.isdir(os.path.join(folder, name)):
            chosen[name] = value
        else:
            said.append((name.split("."), UNKNOWN if "," in value else value_said(value, word)))
    return chosen, said


class _Files:
    """The files of one folder of settings, and which of them the command chooses."""

    def __init__(self, load: Callable[[str], Document | None], folder: str, chosen: dict[str, str]) -> None:
        self._load = load
        self._folder = folder
        self._chosen = chosen

    def read(self, name: str, group: str, depth: int) -> Dict:
        """The settings of a file of ``group``, a folder in the folder of all, with those that it names.

        Raises:
            _OpenError: Something in it is not understood.
        """
        path = os.path.normpath(os.path.join(self._folder, group, _with_suffix(name)))
        document = self._load(path)
        if document is None or not depth:
            raise _OpenError
        package = _PACKAGE.match(document.text)
        package_name = package[1] if package is not None else group.replace("/", ".")
        own = Dict(dict(document.root.items), document.root.open, document.root.node)
        defaults = own.items.pop("defaults", None)
        listed = defaults.items if isinstance(defaults, Seq) else []
        made = Dict({}, False, document.root.node)
        parts = [self._part(it, group, depth - 1) for it in listed]
        if listed and None not in parts:
            parts.insert(0, None)
            # Whether the file itself or the others win depends on the release.
            inner = {key for part in parts if part is not None for key in part.items}
            own.items |= dict.fromkeys(inner & own.items.keys(), UNKNOWN)
            parts = [*parts[1:], None]
        placed = _below(package_name, own)
        for part in parts or [None]:
            merge_deeply(made, placed if part is None else part)
        return made

    def _part(self, item: Value, group: str, depth: int) -> Dict | None:
        """What an entry of `defaults` stands for, in the whole; None for the file itself."""
        match item:
            case Const("_self_"):
                return None
            case Const(str(name)):
                return self.read(name, group, depth)
            case Dict(items) if len(items) == 1:
                (written, value), *_ = items.items()
                name = written.removeprefix("optional ").removeprefix("override ")
                if name.startswith("hydra/"):
                    return Dict({}, False, item.node)
                inner = name[1:] if name.startswith("/") else f"{group}/{name}".lstrip("/")
                return self._of_group(inner, value, depth, is_optional=written.startswith("optional "))
        raise _OpenError

    def _of_group(self, group: str, value: Value, depth: int, *, is_optional: bool) -> Dict:
        if "@" in group or not isinstance(value, Const):
            raise _OpenError
        name = self._chosen.get(group, value.value)
        path = os.path.join(self._folder, group, _with_suffix(str(name)))
        if name in (None, "null") or (is_optional and not os.path.isfile(path)):
            return Dict({}, False, value.node)
        return self.read(str(name), group, depth)


def _below(package: str, held: Dict) -> Dict:
    """``held`` at its place in the whole: `model.encoder`."""
    if package in ("", "_global_"):
        return held
    if not all(map(str.isidentifier, package.split("."))):
        raise _OpenError
    made = Dict({}, False, held.node)
    put(made, package.split("."), held)
    return made


def _with_suffix(name: str) -> str:
    return name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"
