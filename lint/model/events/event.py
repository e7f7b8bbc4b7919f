"""What an event is: something that a call or an assignment does."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeAlias

if TYPE_CHECKING:
    import ast

    from ...facts.values import Call, Place
    from ...facts.walk import Named, Write

#: A text, or texts that must all be there.
Trigger: TypeAlias = "str | tuple[str, ...]"


class Event:
    """Something that happens in a run. ``place`` and ``order`` say where and when."""

    __slots__ = ()
    #: Texts of which at least one is in every file in which this happens; a tuple stands for all of its texts.
    words: ClassVar[tuple[Trigger, ...]] = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(line {getattr(self.node, 'lineno', 1)})"

    @property
    def node(self) -> ast.AST:
        """The call expression, or the statement that assigns."""
        raise NotImplementedError

    @property
    def place(self) -> Place:
        """What is around it."""
        raise NotImplementedError

    @property
    def order(self) -> int:
        """Its position in program order."""
        raise NotImplementedError


class CallEvent(Event):
    """Something that a call does. ``call`` has the arguments."""

    __slots__ = ("call",)
    __match_args__: tuple[str, ...] = ("call",)

    def __init__(self, call: Call) -> None:
        self.call = call

    @property
    def node(self) -> ast.Call:
        """The call expression."""
        return self.call.node

    @property
    def place(self) -> Place:
        """What is around it."""
        return self.call.place

    @property
    def order(self) -> int:
        """Its position in program order."""
        return self.call.order


class WriteEvent(Event):
    """Something that an assignment to an attribute or an item does."""

    __slots__ = ("write",)
    __match_args__: tuple[str, ...] = ("write",)

    def __init__(self, write: Write) -> None:
        self.write = write

    @property
    def node(self) -> ast.AST:
        """The statement."""
        return self.write.node

    @property
    def place(self) -> Place:
        """What is around it."""
        return self.write.place

    @property
    def order(self) -> int:
        """Its position in program order."""
        return self.write.order


class NamingEvent(Event):
    """Something that is named in a statement of its own, and not called."""

    __slots__ = ("named",)
    __match_args__: tuple[str, ...] = ("named",)

    def __init__(self, named: Named) -> None:
        self.named = named

    @property
    def node(self) -> ast.Attribute:
        """The expression."""
        return self.named.node

    @property
    def place(self) -> Place:
        """What is around it."""
        return self.named.place

    @property
    def order(self) -> int:
        """Its position in program order."""
        return self.named.order
