"""A configuration file as values of the analysis that know where they stand in its text."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from ..facts.origin import mark_setting, setting_line, setting_span
from ..facts.values import Const, Dict, Seq, Unknown, Value
from ..finding import Span
from ..sources.lines import line_starts
from .nodes import Mapping, Scalar, Sequence

if TYPE_CHECKING:
    from .nodes import Entry, Node

_KINDS: dict[type[Value], type[ast.expr]] = {Dict: ast.Dict, Seq: ast.List}


class Held(NamedTuple):
    """What a value of the file came from."""

    node: Node
    #: The entry whose value it is; None for the whole file and for items of a list.
    entry: Entry | None


class Document:
    """The values of one file. ``root`` is its mapping; every ``value.node`` carries its place."""

    def __init__(self, filename: str, text: str, root: Mapping) -> None:
        self.filename = filename
        self.text = text
        self._starts = line_starts(text)
        self._held: dict[ast.AST, Held] = {}
        self._made: dict[int, Value] = {}
        self.mapping = root
        self.root: Dict = self._dict(root, None)

    def span(self, begin: int, end: int) -> Span:
        """The range of characters ``begin`` to ``end`` in lines and columns."""
        return Span(*self.position(begin), *self.position(end))

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column (from 1) of a character."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line_start(self, offset: int) -> int:
        """Where the line of a character begins."""
        return self._starts[bisect_right(self._starts, offset) - 1]

    def line_end(self, offset: int) -> int:
        """Where the line of a character ends, its line break left out."""
        match = re.compile(r"\r|\n|\Z").search(self.text, offset)
        return match.start() if match else len(self.text)

    def held(self, node: ast.AST) -> Held | None:
        """What ``node`` stands for in this file; None for nodes from elsewhere."""
        return self._held.get(node)

    def place(self, node: ast.AST, begin: int, end: int) -> None:
        """Say that ``node`` stands at these characters: the place that a finding about it shows."""
        line = self.text[self.line_start(begin) : self.line_end(begin)].strip()
        mark_setting(node, self.filename, self.span(begin, end), line)

    def place_entry(self, node: ast.AST, entry: Entry) -> None:
        """Put ``node`` where ``entry`` stands: all of it, or its key when the value goes on below."""
        whole = self.span(entry.key.begin, entry.value.end)
        begin, end = entry.key.begin, entry.value.end if whole.line == whole.end_line else entry.key.end
        self.place(node, begin, end)

    def place_like(self, node: ast.AST, other: ast.AST) -> None:
        """Put ``node`` where ``other`` is."""
        span, line = setting_span(other), setting_line(other)
        if span is not None and line is not None:
            mark_setting(node, self.filename, span, line)

    def _value(self, node: Node, entry: Entry | None) -> Value:
        # What an alias stands for is one value, however often it is named.
        known = self._made.get(id(node))
        if known is None:
            known = self._made[id(node)] = self._make(node, entry)
        return known

    def _make(self, node: Node, entry: Entry | None) -> Value:
        match node:
            case Mapping():
                return self._dict(node, entry)
            case Sequence(items=items):
                made: Value = Seq("list", [self._value(item, None) for item in items], False, ast.List(elts=[]))
            case Scalar(value=value):
                made = Const(value, ast.Constant(value))  # type: ignore[arg-type]
            case _:
                made = Unknown(ast.Constant(None))
        return self._placed(made, node, entry)

    def _dict(self, node: Mapping, entry: Entry | None) -> Dict:
        made = Dict({}, node.open, ast.Dict(keys=[], values=[]))
        self._made[id(node)] = made
        made.items = {name: self._value(item.value, item) for name, item in node.entries.items()}
        self._placed(made, node, entry)
        return made

    def _placed(self, value: Value, node: Node, entry: Entry | None) -> Value:
        assert value.node is not None
        self._held[value.node] = Held(node, entry)
        if entry is not None:
            self.place_entry(value.node, entry)
        else:
            self.place(value.node, node.begin, node.end)
        return value
