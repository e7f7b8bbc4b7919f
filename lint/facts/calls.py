"""Calls with their arguments bound, as far as the source says it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .values import ABSENT, UNKNOWN, Attr, Partial, Ref, Value, join

if TYPE_CHECKING:
    from .places import Place


class Call:
    """One call of ``func``. A call of a ``partial`` is the call of what the partial stands for.

    ``func`` is one alternative when several functions may be meant; each has its own ``Call`` with the same node.
    """

    __slots__ = (
        *(
            "args",
            "func",
            "kwargs",
            "mappings",
            "node",
            "open_args",
            "open_kwargs",
            "order",
            "place",
            "spread",
            "spread_count",
            "via",
        ),
    )
    __match_args__ = ("func",)

    def __init__(self, node: ast.Call, func: Value, place: Place, order: int) -> None:
        self.node = node
        self.func = func
        self.place = place
        self.order = order
        self.args: list[Value] = []
        self.kwargs: dict[str, Value] = {}
        #: What each `**` gives, where that is one of several dicts.
        self.mappings: list[Value] = []
        #: An unknown `*args` or `**kwargs` may give more.
        self.open_args = False
        self.open_kwargs = False
        #: What an unknown `*args` is known to hold, and what comes behind it.
        self.spread: list[Value] = []
        #: How many arguments those are; None when that is open.
        self.spread_count: int | None = 0
        #: The partials between the call and ``func``, outermost first.
        self.via: tuple[Partial, ...] = ()

    def __repr__(self) -> str:
        return f"Call({self.func!r} at {self.node.lineno})"

    @property
    def name(self) -> str:
        """The full dotted name of what is called, empty when it is nothing imported."""
        return self.func.name if isinstance(self.func, Ref) else ""

    @property
    def method(self) -> str:
        """The name of the method when a method of an opaque object is called, else empty."""
        return self.func.name if isinstance(self.func, Attr) else ""

    @property
    def attribute(self) -> ast.Attribute | None:
        """`obj.method` as it is written in `obj.method(...)`; None for other calls."""
        return self.node.func if isinstance(self.node.func, ast.Attribute) else None

    @property
    def called(self) -> str:
        """The last name of what is called, whatever that is: `step` for `optimizer.step()`; empty for a lambda."""
        match self.node.func:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return name
        return ""

    @property
    def receiver(self) -> Value:
        """The object whose method is called; ABSENT for a plain function."""
        return self.func.base if isinstance(self.func, Attr) else ABSENT

    def argument(self, position: int | None, name: str | None = None) -> Value:
        """The argument at ``position`` or called ``name``; ABSENT when certainly not given."""
        if position is not None and position < len(self.args):
            return self.args[position]
        if name is not None and name in self.kwargs:
            found = self.kwargs[name]
            return join(found, UNKNOWN) if self.open_args and position is not None else found
        if self.open_args and position is not None:
            return UNKNOWN
        return UNKNOWN if self.open_kwargs and name is not None else ABSENT

    def keyword(self, name: str) -> Value:
        """The keyword argument ``name``; ABSENT when certainly not given."""
        return self.kwargs.get(name) or (UNKNOWN if self.open_kwargs else ABSENT)

    def written(self, name: str) -> bool:
        """Whether the keyword stands literally in this call (not in a dict or partial)."""
        return any(keyword.arg == name for keyword in self.node.keywords)
