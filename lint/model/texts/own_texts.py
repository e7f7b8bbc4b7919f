"""What an attribute of a class, or of its objects, holds that one statement writes: `LAYERS = (...)`, `self.LAYERS`."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Methods that leave a container as it is.
_KEEP = frozenset(("copy", "count", "get", "index", "items", "keys", "values"))


def held_by_own(tree: ast.AST, body: ast.AST, node: ast.Attribute) -> ast.expr | None:
    """The expression that ``node``, an attribute of the object or class whose method ``body`` is, stands for.

    Args:
        tree: The module of the method.
        body: The method.
        node: The attribute as it is read.

    Returns:
        None where the one statement that writes it is in another method and writes something else than texts, or where
        several do, in the classes of the module.
    """
    known = _written_in(tree)
    owner = _owner_of(tree, body, node.value)
    values = known.get(node.attr, []) if owner is not None else []
    if len(values) != 1 or values[0][0] is not owner:
        return None
    _, method, value = values[0]
    return value if method is None or method is body or _is_display(value) else None


def _owner_of(tree: ast.AST, body: ast.AST, holder: ast.expr) -> ast.ClassDef | None:
    """The class of what holds the attribute."""
    classes = [cls for cls in all_nodes(tree) if isinstance(cls, ast.ClassDef)]
    around = next((cls for cls in classes if body in cls.body), None)
    match holder:
        case ast.Name(id="self" | "cls") | ast.Attribute(value=ast.Name("self"), attr="__class__"):
            return around
        case ast.Call(func=ast.Name("type"), args=[ast.Name("self")]):
            return around
        case ast.Name(id=name):
            named = [cls for cls in classes if cls.name == name]
            return named[0] if len(named) == 1 else None
    return None


@lru_cache(maxsize=8)
def _written_in(tree: ast.AST) -> dict[str, list[tuple[ast.AST | None, ast.AST | None, ast.expr]]]:
    """By attribute what the classes of a module write to it: the class, the method (None for its body), the value."""
    found: dict[str, list[tuple[ast.AST | None, ast.AST | None, ast.expr]]] = {}
    seen: set[ast.AST] = set()
    for cls in all_nodes(tree):
        if isinstance(cls, ast.ClassDef):
            for method in cls.body:
                for target, value in _assigned(method):
                    seen.add(target)
                    found.setdefault(target.attr, []).append((cls, method, value))
            for name, value in _assigned_in_body(cls):
                found.setdefault(name, []).append((cls, None, value))
    for node in all_nodes(tree):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()) if node not in seen:
                found.setdefault(name, []).append((None, None, node))
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name), attr=called)) if called not in _KEEP:
                found.setdefault(name, []).append((None, None, node))
            case ast.Subscript(value=ast.Attribute(attr=name), ctx=ast.Store() | ast.Del()):
                found.setdefault(name, []).append((None, None, node))
    return found


def _assigned(method: ast.stmt) -> Iterator[tuple[ast.Attribute, ast.expr]]:
    """`self.names = value` in a method."""
    for node in all_nodes(method) if isinstance(method, ast.FunctionDef) else ():
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name("self")) as target], value=value):
                yield target, value


def _assigned_in_body(cls: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for statement in cls.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value


def _is_display(node: ast.expr) -> bool:
    match node:
        case ast.Constant():
            return True
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
            return all(isinstance(part, ast.Constant) for part in parts)
    return False
