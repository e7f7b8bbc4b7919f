"""Dicts and sequences: which elements they hold, and whether there may be more."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .plain import Absent, Unknown, Value

if TYPE_CHECKING:
    from .code import Place


class Dict(Value):
    """A dict with string keys; ``open`` when it may hold more keys than ``items``."""

    __slots__ = ("count", "items", "keys", "open", "place")
    __match_args__ = ("items", "open")

    def __init__(self, items: dict[str, Value], open_: bool, node: ast.AST | None, place: Place | None = None) -> None:
        super().__init__(node)
        self.items = items
        self.open = open_
        self.place = place
        #: How long an open one is when it is made, where that is known.
        self.count: int | None = None
        #: What it has as keys that are no text: operators, classes.
        self.keys: list[Value] = []

    @property
    def display(self) -> ast.Dict | None:
        """`{...}` as it is written; None for what a call made."""
        return self.node if isinstance(self.node, ast.Dict) else None

    def get(self, key: str) -> Value:
        """The value at ``key``; Absent when there is certainly none."""
        return self.items.get(key) or (Unknown(self.node) if self.open else Absent(self.node))


class Seq(Value):
    """A list, tuple or set; ``open`` when its elements are not listed one by one (``items`` are what it may hold)."""

    __slots__ = ("count", "items", "kind", "may_be_empty", "open", "optional", "place", "repeats")
    __match_args__ = ("kind", "items", "open")

    def __init__(
        self, kind: str, items: list[Value], open_: bool, node: ast.AST | None, place: Place | None = None
    ) -> None:
        super().__init__(node)
        self.kind = kind
        self.items = items
        self.open = open_
        self.place = place
        #: How long an open one is when it is made, where that is known.
        self.count: int | None = None
        #: Whether all its items were added under conditions.
        self.may_be_empty = False
        #: The positions in `items` of those that were added under conditions.
        self.optional: list[int] = []
        #: Whether one of `items` may stand for several elements, or for one at another position.
        self.repeats = open_
