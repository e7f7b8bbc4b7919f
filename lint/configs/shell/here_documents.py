"""Files that a launch script writes itself: `cat > ds.json <<'EOF'`, with their places in the script."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, NamedTuple

from ..nodes import ConfigError, Entry, Mapping, Scalar
from ..root import read_root

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HERE = re.compile(
    r"""
    ^ (?P<line> [^\n#]* <<-? [ \t]* (?P<quote>["']?) (?P<end>\w+) (?P=quote) [^\n]*) \n
    (?P<body> .*?)
    ^ [ \t]* (?P=end) [ \t]* \r? $
    """,
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)
#: Where it goes: `cat > ds.json`, `tee "ds.json"`; what is added to a file is not all of it.
_TARGET = re.compile(r"""(?:(?<!>)>[ \t]*|\btee[ \t]+)(["']?)([\w./-]+\.(?:json|ya?ml))\1(?=\s|$)""")


class Written(NamedTuple):
    """A file that a script writes: its name, and its content with places in the script."""

    name: str
    root: Mapping


def without_bodies(text: str) -> str:
    """``text`` with the bodies of its here-documents blank: they are no commands. Every character keeps its place."""
    parts, done = [], 0
    for match in _HERE.finditer(text) if "<<" in text else ():
        begin, end = match.span("body")
        parts += [text[done:begin], re.sub(r"[^\n]", " ", text[begin:end])]
        done = end
    return "".join((*parts, text[done:]))


def written_by(text: str) -> list[Written]:
    """The configurations that a launch script writes once, whatever it is started with."""
    found: dict[str, list[Mapping | None]] = {}
    for match in _HERE.finditer(text) if "<<" in text else ():
        target = _TARGET.search(match["line"])
        if target is not None:
            found.setdefault(posixpath.basename(target[2]), []).append(_root(match, target[2], text))
    return [Written(name, roots[0]) for name, roots in found.items() if len(roots) == 1 and roots[0] is not None]


def _root(match: re.Match[str], name: str, text: str) -> Mapping | None:
    begin, end = match.span("body")
    if not match["quote"] and any(char in text[begin:end] for char in "$`"):
        return None  # The shell puts something in.
    # What stands before it only keeps the places.
    before = re.sub(r"[^\n]", " ", text[:begin])
    try:
        root = read_root(name, f"{before}{text[begin:end]}")
    except ConfigError:
        return None
    return root if isinstance(root, Mapping) else None


def named_in(words: Iterable[str], text: str) -> Iterator[Written]:
    """The files that the script writes and that ``words`` of a command name."""
    said = {posixpath.basename(word.rpartition("=")[2]) for word in words}
    return (file for file in written_by(text) if file.name in said)


def with_content(entries: dict[str, Entry], text: str) -> dict[str, Entry]:
    """The arguments of a command, with the content of DeepSpeed's file where the script ``text`` writes it."""
    entry = entries.get("deepspeed")
    if entry is None or not isinstance(entry.value, Scalar) or not isinstance(entry.value.value, str):
        return entries
    found = next(named_in([entry.value.value], text), None)
    return entries if found is None else entries | {"deepspeed": Entry(entry.key, found.root, shared=True)}
