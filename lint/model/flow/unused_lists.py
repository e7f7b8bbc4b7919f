"""Whether a list that a function fills for itself is read: `wrapped.append(wrap(layer))`, and nothing else."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes, source_text

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Calls that give a list of their own.
_COPIES = ("list", "nn.ModuleList", "torch.nn.ModuleList", "ModuleList")


def put_into(value: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> str:
    """The name of the list that ``value`` is put into: by `name.append(value)`, `name[i] = value`; empty for none."""
    holder = parents.get(value)
    match holder:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[given]) if given is value:
            return name if isinstance(parents.get(holder), ast.Expr) else ""
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name))]):
            return name
    return ""


def is_own_unread_list(name: str, body: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether ``name`` is a list that ``body`` makes, and only fills, counts or takes elements of to put them back."""
    named = [node for node in all_nodes(body) if isinstance(node, ast.Name) and node.id == name]
    stored = [node for node in named if isinstance(node.ctx, ast.Store)]
    if len(stored) != 1 or not _is_made(parents.get(stored[0])):
        return False
    return all(_is_for_itself(node, name, parents) for node in named if node is not stored[0])


def _is_made(statement: ast.AST | None) -> bool:
    match statement:
        case ast.Assign(targets=[ast.Name()], value=ast.List() | ast.ListComp()):
            return True
        case ast.Assign(targets=[ast.Name()], value=ast.Call(func=made)):
            return source_text(made) in _COPIES
    return False


def _is_for_itself(node: ast.Name, name: str, parents: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether what reads ``node``, the list, only fills it, asks for its length or goes through it to fill it."""
    holder = parents.get(node)
    match holder:
        case ast.Attribute(attr="append"):
            return isinstance(parents.get(parents.get(holder, node)), ast.Expr)
        case ast.Call(func=ast.Name("len")):
            return True
        case ast.Call(func=ast.Name("enumerate")):
            return _only_fills(parents.get(holder), name)
        case ast.Subscript(value=held, ctx=ast.Store()) if held is node:
            return True
        case ast.Subscript(value=held) if held is node:
            return _goes_back(holder, name, parents)
        case ast.For(iter=passed):
            return passed is node and _only_fills(holder, name)
    return False


def _only_fills(loop: ast.AST | None, name: str) -> bool:
    """Whether ``loop`` does nothing but store elements of the list: what it goes through, it may use otherwise."""
    match loop:
        case ast.For(body=[ast.Assign(targets=[ast.Subscript(value=ast.Name(id=stored))])], orelse=[]):
            return stored == name
    return False


def _goes_back(element: ast.AST, name: str, parents: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether ``element`` stands in a statement that stores an element of the list: `xs[i] = wrap(xs[i])`."""
    while not isinstance(element, ast.stmt) and element in parents:
        element = parents[element]
    match element:
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=stored))]):
            return stored == name
    return False
