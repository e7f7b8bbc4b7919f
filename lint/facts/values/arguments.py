"""What a call is given, as far as the source says it."""

from __future__ import annotations

from .alternatives import join
from .plain import ABSENT, UNKNOWN, Value


class Arguments:
    """The arguments of a call: those that are known, and whether there may be more.

    Args:
        given: The arguments to start with; the lists are shared with them.
    """

    __slots__ = ("args", "kwargs", "mappings", "open_args", "open_kwargs", "spread", "spread_count", "unpacked")

    def __init__(self, given: Arguments | None = None) -> None:
        self.args: list[Value] = given.args if given else []
        self.kwargs: dict[str, Value] = given.kwargs if given else {}
        #: What each `**` gives, where that is one of several dicts.
        self.mappings: list[Value] = given.mappings if given else []
        #: An unknown `*args` or `**kwargs` may give more.
        self.open_args: bool = given.open_args if given else False
        self.open_kwargs: bool = given.open_kwargs if given else False
        #: What an unknown `*args` is known to hold, and what comes behind it.
        self.spread: list[Value] = given.spread if given else []
        #: How many arguments those are; None when that is open.
        self.spread_count: int | None = given.spread_count if given else 0
        #: The one thing that `*` takes apart behind ``args``, where its parts are not known: a batch.
        self.unpacked: Value | None = given.unpacked if given else None

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
