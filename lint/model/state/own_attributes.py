"""Expressions that are, move or scale what a method finds in an attribute of its object."""

from __future__ import annotations

import ast

#: Methods that give the values they were called on, on another device, in another type or shape.
_KEEP = frozenset(
    (
        *("to", "cuda", "cpu", "float", "half", "bfloat16", "double", "type", "type_as"),
        *("contiguous", "clone", "detach", "view", "reshape"),
    )
)


def is_of_self(node: ast.Attribute) -> bool:
    """Whether ``node`` is an attribute of `self`."""
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def own_place(node: ast.AST) -> str:
    """Where an object or its class keeps ``node``, as text: `stats["n"]` for `self.stats["n"]`; empty for others.

    What registers buffers keeps them as attributes: `self._buffers["mean"]` is `mean`.
    """
    match node:
        case ast.Attribute(value=ast.Call(func=ast.Name(id="type"), args=[ast.Name(id="self")]), attr=name):
            return f"type(self).{name}"
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="self"), attr="__class__"), attr=name):
            return f"type(self).{name}"
        case ast.Subscript(
            value=ast.Attribute(value=ast.Name(id="self"), attr="_buffers"), slice=ast.Constant(str(name))
        ):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr="get_buffer"), args=[ast.Constant(str(name))]):
            return name
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id="self"), attr=held), slice=ast.Constant(str(key))):
            return f'{held}["{key}"]'
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="self"), attr=held), attr=name):
            return f"{held}.{name}"
    return ""


def keeps(value: ast.expr, target: ast.Attribute) -> bool:
    """Whether ``value`` is what ``target``, of ``self``, holds already: moved, cast, reshaped or within bounds."""
    match value:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return is_of_self(target) and name == target.attr
        case ast.Attribute(value=inner, attr="data"):
            return keeps(inner, target)
        case ast.Call(func=ast.Attribute(value=inner, attr=method)):
            return method in _KEEP and keeps(inner, target)
        case ast.IfExp(body=body, orelse=orelse):
            return keeps(body, target) and keeps(orelse, target)
        case ast.Call(func=ast.Name(id="min" | "max"), args=[*given], keywords=[]):
            # What is within bounds already stays as it is.
            return any(keeps(part, target) for part in given) and not any(_steps(part, target) for part in given)
    return False


def _steps(value: ast.expr, target: ast.Attribute) -> bool:
    """Whether ``value`` is computed with what ``target``, an attribute of ``self``, holds, and is another one."""
    reads = (node for node in ast.walk(value) if isinstance(node, ast.Attribute) and is_of_self(node))
    return not keeps(value, target) and any(node.attr == target.attr for node in reads)


def scales(value: ast.expr, name: str) -> bool:
    """Whether ``value`` has a multiple of the attribute ``name`` of ``self`` in it: `0.9 * self.mean + 0.1 * x`."""
    products = (part for part in ast.walk(value) if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult))
    factors = (inner for product in products for inner in ast.walk(product))
    return any(isinstance(it, ast.Attribute) and it.attr == name and is_of_self(it) for it in factors)
