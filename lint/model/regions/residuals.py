"""Calls whose result is added to something: `x = x + self.mlp(self.norm(x))`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes
from ...facts.origin import as_written
from ...facts.surroundings import parents_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def is_residual(call: ast.Call, body: ast.AST) -> bool:
    """Whether what ``call`` gives, or what is made of it, is added to a variable, at once or by a variable of its own.

    Args:
        call: The call.
        body: The function that it stands in.
    """
    return _is_added(as_written(call), body, parents_in(body))


def _is_added(value: ast.AST, body: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> bool:
    holder = parents.get(value)
    while isinstance(holder, ast.Call | ast.BinOp | ast.Subscript):
        if any(isinstance(term, ast.Name) for term in _others(holder, value)):
            return True
        value, holder = holder, parents.get(holder)
    match holder:
        case ast.AugAssign(op=ast.Add(), target=ast.Name()):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            reads = list(_reads(name, holder, body))
            return bool(reads) and all(_is_term(read, parents) for read in reads)
    return False


def _is_term(read: ast.Name, parents: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether a variable is added to another one right where it is read, or after calls such as a dropout."""
    value: ast.AST = read
    holder = parents.get(value)
    while isinstance(holder, ast.Call | ast.BinOp):
        if any(isinstance(term, ast.Name) and term.id != read.id for term in _others(holder, value)):
            return True
        value, holder = holder, parents.get(holder)
    return isinstance(holder, ast.AugAssign) and isinstance(holder.op, ast.Add)


def _others(holder: ast.AST, value: ast.AST) -> Iterator[ast.expr]:
    """What ``holder`` adds ``value`` to."""
    match holder:
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            yield from (term for side in (left, right) if side is not value for term in _terms(side))
        case ast.Call(func=ast.Attribute(value=base, attr="add"), args=args) if value in args:
            yield from (term for term in (base, *args) if term is not value and ast.unparse(term) != "torch")


def _terms(side: ast.expr) -> Iterator[ast.expr]:
    match side:
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            yield from _terms(left)
            yield from _terms(right)
        case _:
            yield side


def _reads(name: str, binding: ast.Assign, body: ast.AST) -> Iterator[ast.Name]:
    """Where ``name`` is read as ``binding`` left it, in a function that goes on from line to line."""
    end = binding.end_lineno or binding.lineno
    behind = [it for it in all_nodes(body) if isinstance(it, ast.Name) and it.id == name and it.lineno > end]
    bound = min((it.lineno for it in behind if isinstance(it.ctx, ast.Store)), default=None)
    for node in behind:
        if isinstance(node.ctx, ast.Load) and (bound is None or node.lineno <= bound):
            yield node
