"""Scripts that build a model and train it: what their own constructors set, nothing else will change."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from .nodes import all_nodes
from .origin import origin
from .values import Class, Ref, Result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .calls import Call
    from .values import Instance

#: Libraries that leave the attributes of a user's class as its `__init__` set them.
_PLAIN_BASES = ("torch.nn.", "builtins.object", "lightning.", "pytorch_lightning.")
#: Functions that take a class and build nothing.
_ASKING = frozenset(("isinstance", "issubclass", "super"))
_TRAINING = frozenset(("backward", "fit"))


class Script(NamedTuple):
    """A program that builds a model and trains it, from its first line on."""

    #: The classes whose objects it shows all of.
    built: frozenset[ast.ClassDef]
    #: The attributes that something other than a constructor sets.
    rebound: frozenset[str]

    def settles(self, instance: Instance, name: str) -> bool:
        """Whether every object of the class of ``instance`` keeps the ``name`` that its constructor gave it."""
        return instance.cls.node in self.built and name not in self.rebound


def whole_script(tree: ast.Module, calls: list[Call]) -> Script | None:
    """A program of these ``calls``, once it was walked from its first line; None when it trains nothing by itself."""
    run = [call for call in calls if call.place.walk == 0]
    rebound = _rebound(tree) if any(map(_trains, run)) else None
    return None if rebound is None else Script(frozenset(_built(tree, run)), rebound)


def _trains(call: Call) -> bool:
    if call.method == "train":
        return isinstance(call.receiver, Result) and call.receiver.call.name.endswith("Trainer")
    return call.method in _TRAINING


def _built(tree: ast.Module, run: list[Call]) -> Iterator[ast.ClassDef]:
    """The classes of the file that are only ever called, each time by the ``run``."""
    called = {call.func for call in run if isinstance(call.func, Class)}
    calls = {id(call.node.func) for call in run if isinstance(call.func, Class)}
    asked = set(_only_asked(tree))
    escaped = {
        node.id
        for node in all_nodes(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in calls | asked
    }
    for cls in called:
        if origin(cls.node) is None and cls.name not in escaped and _is_plain(cls):
            yield cls.node


def _only_asked(tree: ast.AST) -> Iterator[int]:
    """The names in annotations and in questions about classes."""
    for node in all_nodes(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in _ASKING:
                parts: list[ast.AST] = [*node.args]
            case ast.arg(annotation=ast.expr() as annotation) | ast.AnnAssign(annotation=annotation):
                parts = [annotation]
            case ast.FunctionDef(returns=ast.expr() as annotation):
                parts = [annotation]
            case _:
                continue
        yield from (id(part) for outer in parts for part in ast.walk(outer))


def _is_plain(cls: Class) -> bool:
    return all(
        _is_plain(base) if isinstance(base, Class) else isinstance(base, Ref) and base.name.startswith(_PLAIN_BASES)
        for base in cls.bases
    )


def _rebound(tree: ast.AST) -> frozenset[str] | None:
    """The attributes that are set outside of constructors; None when some are set by names that are not shown."""
    own = {id(node) for body in _constructors(tree) for node in ast.walk(body)}
    found: set[str] = set()
    for node in all_nodes(tree):
        match node:
            case ast.Attribute(attr="__dict__"):
                return None
            case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()) if id(node) not in own:
                found.add(name)
            case ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(value=str(name)), *_]):
                found.add(name)
            case ast.Call(func=ast.Name(id="setattr" | "vars") | ast.Attribute(attr="__setattr__")):
                return None
    return frozenset(found)


def _constructors(tree: ast.AST) -> Iterator[ast.AST]:
    for node in all_nodes(tree):
        if isinstance(node, ast.FunctionDef) and node.name in ("__init__", "__post_init__"):
            yield node
