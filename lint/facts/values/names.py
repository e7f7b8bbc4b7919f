"""What a name means that the program itself gives meaning: a module of it, a parameter, a method, ``super()``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .plain import Value, same

if TYPE_CHECKING:
    import ast
    from collections.abc import Hashable

    from ..scopes import Scope
    from .code import Class, Function, Instance


class Module(Value):
    """A module of the project that was read."""

    __slots__ = ("name", "scope")
    __match_args__ = ("name",)

    def __init__(self, name: str, scope: Scope, node: ast.AST | None = None) -> None:
        super().__init__(node)
        self.name = name
        self.scope = scope


class Param(Value):
    """A parameter of a function that is looked at without a caller."""

    __slots__ = ("annotation", "default", "function", "name")
    __match_args__ = ("name",)

    def __init__(self, name: str, function: Function, node: ast.arg) -> None:
        super().__init__(node)
        self.name = name
        self.function = function
        self.default: Value | None = None
        self.annotation: Value | None = None

    def is_same(self, other: Value) -> bool:
        """Never: another call may give another value."""
        return False


class Method(Value):
    """A method of the file bound to its object."""

    __slots__ = ("function", "receiver")
    __match_args__ = ("receiver", "function")

    def __init__(self, receiver: Value, function: Function, node: ast.AST | None) -> None:
        super().__init__(node)
        self.receiver = receiver
        self.function = function

    def is_same(self, other: Value) -> bool:
        """Whether it is the same method of the same object."""
        return isinstance(other, Method) and self.function is other.function and same(self.receiver, other.receiver)

    def key(self) -> Hashable:
        """The method and its object."""
        return self.function, self.receiver.key()


class Super(Value):
    """``super()`` for ``instance`` in a method that ``cls`` defines."""

    __slots__ = ("cls", "instance")

    def __init__(self, instance: Instance, cls: Class, node: ast.AST | None) -> None:
        super().__init__(node)
        self.instance = instance
        self.cls = cls
