"""What a context manager of the program makes of the exception by which torch ends a recomputation."""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING

from ...facts.composed import composed
from ...facts.nodes import all_nodes
from ...facts.parameters import positional_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...facts.values import Function

#: What catches every exception of torch.
EVERYTHING = ("Exception", "BaseException")


def raises_another(leaving: ast.stmt | None) -> bool:
    """Whether a statement raises an exception of its own."""
    return isinstance(leaving, ast.Raise) and isinstance(leaving.exc, ast.Call)


def left_by(method: Function) -> ast.Raise | ast.Return | None:
    """The statement by which `__exit__` surely ends when it gets that exception: a `raise`, or a `return True`.

    None where it lets the exception through, or what it does is open.
    """
    body = method.node.body
    given = frozenset(positional_names(method.node)[1:4])
    is_known, found = _leaving(body if isinstance(body, list) else [], given)
    match found if is_known else None:
        case ast.Raise() as left:
            return left
        case ast.Return(value=ast.expr() as value) as left if _holds(value, given):
            return left
    return None


def _leaving(body: Iterable[ast.stmt], given: frozenset[str]) -> tuple[bool, ast.stmt | None]:
    """Whether it is known how ``body`` is left, and the statement that leaves it; None where it comes to its end."""
    for statement in body:
        match statement:
            case ast.Raise() | ast.Return():
                return True, statement
            case ast.If(test=test, body=inner, orelse=other):
                holds = _holds(test, given)
                is_known, found = (False, None) if holds is None else _leaving(inner if holds else other, given)
                if not is_known or found is not None:
                    return is_known, found
            case _ if any(isinstance(node, ast.Raise | ast.Return) for node in all_nodes(statement)):
                return False, None
    return True, None


def _holds(test: ast.expr, given: frozenset[str]) -> bool | None:
    """What ``test`` is, where the parameters ``given`` hold an exception; None where that does not decide it."""
    return composed(test, lambda part: _part_holds(part, given))


def _part_holds(part: ast.AST, given: frozenset[str]) -> bool | None:
    match part:
        case ast.Constant(value=value):
            return bool(value)
        case ast.Name(id=name) if name in given:
            return True
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(None)]):
            return isinstance(op, ast.IsNot) if name in given else None
        case ast.Call(func=ast.Name("issubclass" | "isinstance"), args=[ast.Name(id=name), kind]) if name in given:
            return _is_of(kind)
    return None


def _is_of(kind: ast.expr) -> bool | None:
    """Whether torch's exception is of ``kind``: it derives from `Exception`, and from nothing else."""
    names = [it.id if isinstance(it, ast.Name) else "" for it in (kind.elts if isinstance(kind, ast.Tuple) else [kind])]
    if any(name in EVERYTHING for name in names):
        return True
    return False if all(name and hasattr(builtins, name) for name in names) else None
