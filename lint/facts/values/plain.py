"""Values that know no call, place or scope: constants, imported names, and parts of what is not known.

They compare by identity; a value that is looked up twice is the same object, so ``model.config`` written in one place
and read in another meet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast
    from collections.abc import Hashable


class Value:
    """Something an expression evaluates to; ``node`` is the expression that produced it."""

    __slots__ = ("attributes", "node")

    def __init__(self, node: ast.AST | None) -> None:
        self.node = node
        #: What is known of the attributes: those written, and opaque ones handed out before.
        self.attributes: dict[str, Value] | None = None

    def is_same(self, other: Value) -> bool:
        """Whether another object is certainly this value: the same expression, walked again from another caller."""
        return type(self) is type(other) and self.node is other.node and self.node is not None

    def key(self) -> Hashable:
        """What all values share that are the same as this one, to look them up by; others may share it too."""
        return self if self.node is None else self.node

    def is_one_with(self, other: Value) -> bool:
        """Whether both certainly stand for one object at run time: the expression came to be evaluated the same way."""
        return self.is_same(other)

    def __repr__(self) -> str:
        fields = [f"{name}={getattr(self, name)!r}" for name in self.__match_args__]
        return f"{type(self).__name__}({', '.join(fields)})"

    __match_args__: tuple[str, ...] = ()


class Unknown(Value):
    """Anything."""

    __slots__ = ()

    def is_same(self, other: Value) -> bool:
        """Whether the other is unknown too."""
        return isinstance(other, Unknown)

    def key(self) -> Hashable:
        """One for all that is unknown."""
        return Unknown


class Computed(Unknown):
    """What an operator gives: nothing is known of it but what it was computed from."""

    __slots__ = ("operands",)

    def __init__(self, operands: tuple[Value, ...], node: ast.AST | None) -> None:
        super().__init__(node)
        self.operands = operands


class Test(Unknown):
    """What a comparison, `not`, `and` or `or` comes out as: nothing is known of it but what it asks for."""

    __slots__ = ("operands",)

    def __init__(self, operands: tuple[Value, ...], node: ast.AST | None) -> None:
        super().__init__(node)
        self.operands = operands


class Given(Unknown):
    """An argument that a call passes under a name: it is there, and nothing else is known of it."""

    __slots__ = ()


class Absent(Value):
    """Certainly not given: the answer for an argument or key that is not there."""

    __slots__ = ()

    def is_same(self, other: Value) -> bool:
        """Whether the other is absent too."""
        return isinstance(other, Absent)

    def key(self) -> Hashable:
        """One for all that is absent."""
        return Absent


class Const(Value):
    """A literal: None, a bool, a number, a string."""

    __slots__ = ("value",)
    __match_args__ = ("value",)

    def __init__(self, value: object, node: ast.AST | None = None) -> None:
        super().__init__(node)
        self.value = value

    def is_same(self, other: Value) -> bool:
        """Whether it is the same literal: `1` is not `True`."""
        return isinstance(other, Const) and type(self.value) is type(other.value) and self.value == other.value

    def key(self) -> Hashable:
        """The literal."""
        return type(self.value), self.value


class Template(Value):
    """A string of which parts are known: ``stage{}`` for ``f"stage{i}"``."""

    __slots__ = ("pattern",)
    __match_args__ = ("pattern",)

    def __init__(self, pattern: str, node: ast.AST | None) -> None:
        super().__init__(node)
        self.pattern = pattern


class Ref(Value):
    """Something imported, by its full dotted name: ``torch.utils.checkpoint.checkpoint``."""

    __slots__ = ("name",)
    __match_args__ = ("name",)

    def __init__(self, name: str, node: ast.AST | None = None) -> None:
        super().__init__(node)
        self.name = name

    def is_same(self, other: Value) -> bool:
        """Whether both have one name."""
        return isinstance(other, Ref) and self.name == other.name

    def key(self) -> Hashable:
        """The name."""
        return Ref, self.name


class Attr(Value):
    """The attribute ``name`` of a value whose inside is not known."""

    __slots__ = ("base", "name")
    __match_args__ = ("base", "name")

    def __init__(self, base: Value, name: str, node: ast.AST | None) -> None:
        super().__init__(node)
        self.base = base
        self.name = name

    def is_same(self, other: Value) -> bool:
        """Whether it is the same attribute of the same value."""
        return isinstance(other, Attr) and self.name == other.name and same(self.base, other.base)

    def key(self) -> Hashable:
        """The names that lead to it, and what they start from."""
        names, base = [self.name], self.base
        while isinstance(base, Attr):
            names.append(base.name)
            base = base.base
        return base.key(), *names

    def is_one_with(self, other: Value) -> bool:
        """Whether it is the same attribute of one object."""
        return isinstance(other, Attr) and self.name == other.name and one(self.base, other.base)


class Element(Value):
    """An element of ``of``, a container whose inside is not known, at ``index`` when that is a constant.

    Of a slice ``bounds`` says which one, where these are numbers that are known.
    """

    __slots__ = ("bounds", "index", "of")
    __match_args__ = ("of",)

    def __init__(self, of: Value, node: ast.AST | None, index: object = None, bounds: slice | None = None) -> None:
        super().__init__(node)
        self.of = of
        self.index = index
        self.bounds = bounds

    def is_same(self, other: Value) -> bool:
        """Whether the same expression takes it from the same container."""
        return isinstance(other, Element) and super().is_same(other) and same(self.of, other.of)


UNKNOWN = Unknown(None)
ABSENT = Absent(None)


def same(left: Value, right: Value) -> bool:
    """Whether two values are the same as far as the source says: one expression gave both."""
    return left is right or left.is_same(right)


def one(left: Value, right: Value) -> bool:
    """Whether two values are certainly one object: a helper that is called twice gives two, a copy is another one."""
    return left is right or left.is_one_with(right)
