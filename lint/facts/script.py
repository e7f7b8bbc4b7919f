"""Scripts that build a model and train it: what their own constructors set, nothing else will change."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from .nodes import all_nodes
from .origin import origin
from .values import Class, Ref, Result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .values import Call, Instance

#: Libraries that leave the attributes of a user's class as its `__init__` set them.
_PLAIN_BASES = ("torch.nn.", "builtins.object", "lightning.", "pytorch_lightning.")
#: Functions that take a class and build nothing.
_ASKING = frozenset(("isinstance", "issubclass", "super"))
#: Methods that PyTorch, Lightning and transformers call themselves.
_CALLED_BY_LIBRARIES = re.compile(
    r"__|forward|train|eval|setup|configure|on_|validation|test|predict|.*gradient_checkpointing|.*grad_checkpointing"
)
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
    rebound = _rebound(tree, _modules(run)) if any(map(_trains, run)) else None
    return None if rebound is None else Script(frozenset(_built(tree, run)), rebound)


def _trains(call: Call) -> bool:
    if call.method == "train":
        return isinstance(call.receiver, Result) and call.receiver.call.name.endswith("Trainer")
    return call.method in _TRAINING


def _built(tree: ast.Module, run: list[Call]) -> Iterator[ast.ClassDef]:
    """The classes of the file that are only ever called, each time by the ``run``."""
    called = {call.func for call in run if isinstance(call.func, Class)}
    calls = {id(call.naming.func) for call in run if isinstance(call.func, Class)}
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


def _modules(run: list[Call]) -> frozenset[int]:
    """The calls that build a module: what they give is no switch."""
    return frozenset(id(call.node) for call in run if isinstance(call.func, Class) or call.name.startswith("torch."))


def _rebound(tree: ast.Module, modules: frozenset[int]) -> frozenset[str] | None:
    """The attributes that are set outside of constructors; None when some are set by names that are not shown."""
    own = {id(node) for body in _left_out(tree) for node in ast.walk(body)}
    found: set[str] = set()
    for node in all_nodes(tree):
        if id(node) in own:
            continue
        match node:
            case ast.Attribute(attr="__dict__"):
                return None
            case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()):
                found.add(name)
            case ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(value=str(name)), *_]):
                found.add(name)
            case ast.Call(func=ast.Name(id="setattr"), args=[_, _, value]) if id(value) in modules:
                pass
            case ast.Call(func=ast.Name(id="setattr" | "vars") | ast.Attribute(attr="__setattr__")):
                return None
    return frozenset(found)


def _left_out(tree: ast.Module) -> Iterator[ast.AST]:
    """Constructors, and functions that nothing in the script speaks of and no library calls."""
    said = {_said(node) for node in all_nodes(tree)}
    for node in all_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            unused = node.name not in said and not node.decorator_list and not _CALLED_BY_LIBRARIES.match(node.name)
            if unused or node.name in ("__init__", "__post_init__"):
                yield node


def _said(node: ast.AST) -> str:
    """The name, or the text, by which ``node`` may mean a function."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
            return name
    return ""
