"""What a word of a shell script comes to: quotes, variables, and the usual ways to name the script's own folder."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: `$(...)` with others in it, three levels deep.
RUN = r"\$\((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*\)"
_RUN = re.compile(RUN)
_PART = re.compile(
    r"""'(?P<single>[^']*)'|"(?P<double>(?:\\.|[^"\\])*)"|\\(?P<escaped>.)|(?P<plain>[^'"\\]+)""", re.DOTALL
)
#: Variables that may hold more than one argument, by their names.
_SEVERAL = re.compile(r"[@*]|\$\(|`|arg|opt|extra|param|flag|cmd|other|more", re.IGNORECASE)
#: A word in double quotes from end to end: the shell makes one argument of it, whatever it has to run for that.
_QUOTED = re.compile(r'"(?:\$\((?:[^()"]|"[^"]*")*\)|\$(?!\()|[^"$])*"')
_EACH = re.compile(r"[@*]")
_VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")
#: The script as it names itself; here `@`.
_ITSELF = re.compile(r"\$\{?(?:BASH_SOURCE(?:\[0\])?|0)(?::-\$\{?0\}?)?\}?")
#: What matters to no path: quotes, options, where messages go.
_BESIDE = re.compile(r"""["']|(?<=\s)--?\w*(?=\s)|(?:\d|&)?>\s*/dev/null|2>&1""")
#: Each makes a folder of the script, or of a folder, which is `.` here.
_FOLDERS = (
    (re.compile(r"\$\(\s*(?:realpath|readlink)\s+([@.][./]*?)/?\s*;?\s*\)"), r"\1"),
    (re.compile(r"\$\(\s*dirname\s+@\s*;?\s*\)"), "."),
    (re.compile(r"\$\(\s*dirname\s+(\.[./]*)\s*;?\s*\)"), r"\1/.."),
    (re.compile(r"\$\(\s*cd\s+(\.[./]*)\s*(?:&&|;)\s*pwd\s*(?:-\w\s*)?;?\s*\)"), r"\1"),
    (re.compile(r"\$\(\s*(?:pwd|git\s+rev-parse\s+--show-toplevel)\s*\)|\$PWD\b|\$\{PWD\}"), "."),
)


def with_folders(raw: str) -> str:
    """``raw`` with `.` for what runs something to find the folder that the script lies in, or is started in."""
    if "$PWD" in raw or "${PWD}" in raw:
        raw = _FOLDERS[-1][0].sub(".", raw)
    return _RUN.sub(lambda match: _folder(match.group()) or match.group(), raw) if "$(" in raw else raw


def _folder(run: str) -> str | None:
    """The folder that ``run`` gives, from the script's own; None for anything else."""
    before, text = "", _BESIDE.sub("", _ITSELF.sub("@", run)) if "--show-toplevel" not in run else run
    while before != text:
        before = text
        for pattern, folder in _FOLDERS:
            text = pattern.sub(folder, text)
    return text if text.startswith(".") and not text.strip("./") else None


def unquoted(raw: str, variables: Mapping[str, str | None]) -> str | None:
    """What the word ``raw`` comes to; None when only the shell knows it.

    Args:
        raw: A word as it is written.
        variables: What variables hold, as far as that is known.
    """
    parts = []
    for match in _PART.finditer(with_folders(raw)):
        if match.lastgroup in ("single", "escaped"):
            parts.append(match[match.lastgroup])
            continue
        text = match["double"] if match["double"] is not None else match["plain"]
        expanded = _expanded(text, variables)
        if expanded is None:
            return None
        parts.append(re.sub(r'\\(["\\$`])', r"\1", expanded) if match["double"] is not None else expanded)
    return "".join(parts)


def _expanded(text: str, variables: Mapping[str, str | None]) -> str | None:
    """``text`` with its variables put in; None when one is not known, or something has to be run."""
    if "$(" in text or "`" in text or (any(char in text for char in "*?") and "$" in text):
        return None
    for match in _VARIABLE.finditer(text):
        if variables.get(match[1] or match[2]) is None:
            return None
    expanded = _VARIABLE.sub(lambda match: variables[match[1] or match[2]] or "", text)
    return None if "$" in expanded else expanded


def is_one(raw: str) -> bool:
    """Whether the shell certainly makes one argument of a word: `$MODEL` by its name, `"$(date)"` by its quotes."""
    is_run = "$(" in raw and _QUOTED.fullmatch(raw) is not None and _EACH.search(raw) is None
    return is_run or _SEVERAL.search(raw) is None
