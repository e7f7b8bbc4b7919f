"""A configuration file as values of the analysis that know where they stand in its text."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ..facts.origin import mark_setting, origin, setting_line, setting_span
from ..facts.values import Const, Dict, Seq, Unknown, Value
from ..sources.locator import Locator
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
        #: Tells where characters of the text are.
        self.locator = Locator(text)
        self._held: dict[ast.AST, Held] = {}
        self._made: dict[int, Value] = {}
        self.mapping = root
        self.root: Dict = self._dict(root, None)

    def held(self, node: ast.AST) -> Held | None:
        """What ``node`` stands for in this file; None for nodes from elsewhere."""
        return self._held.get(node)

    def place(self, node: ast.AST, begin: int, end: int) -> None:
        """Say that ``node`` stands at these characters: the place that a finding about it shows."""
        line = self.locator.lines[self.locator.line(begin) - 1].strip()
        mark_setting(node, self.filename, self.locator.span(begin, end), line)

    def place_entry(self, node: ast.AST, entry: Entry) -> None:
        """Put ``node`` where ``entry`` stands: all of it, or its key when the value goes on below."""
        whole = self.locator.span(entry.key.begin, entry.value.end)
        begin, end = entry.key.begin, entry.value.end if whole.line == whole.end_line else entry.key.end
        self.place(node, begin, end)

    def place_like(self, node: ast.AST, other: ast.AST) -> None:
        """Put ``node`` where ``other`` is."""
        span, line = setting_span(other), setting_line(other)
        if span is not None and line is not None:
            mark_setting(node, origin(other) or self.filename, span, line)

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
