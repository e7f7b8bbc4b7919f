"""What a block adds to its result, or multiplies it by, where a parameter of it says so: `x + y if residual else y`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes
from ...facts.parameters import positional_names
from .branches import branches, effects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import FunctionNode


def added_by(name: str, function: FunctionNode) -> list[ast.expr]:
    """The terms and factors that ``function`` has in its result by one answer to its parameter ``name`` alone."""
    return [term for one, other in _ways(name, function) for term in (_beyond(one, other) or _beyond(other, one))]


def adds_input(name: str, function: FunctionNode) -> bool:
    """Whether that is what ``function`` is given: a residual connection, which is no matter of the mode."""
    given = positional_names(function)
    return any(isinstance(term, ast.Name) and term.id in given for term in added_by(name, function))


def _ways(name: str, function: FunctionNode) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What each condition on the parameter leaves in a variable or returns, by both of its ways."""
    for node in all_nodes(function):
        match node:
            case ast.IfExp(test=test, body=one, orelse=other) if _asks_for(name, test):
                yield one, other
            case ast.If(test=test) if _asks_for(name, test):
                one_way, other_way = (effects(way) for way in branches(node, function))
                for place in one_way.keys() | other_way.keys() if _end_alike(one_way, other_way) else ():
                    if place != "return" and place.isidentifier():
                        before = ast.Name(place, ast.Load())
                        yield one_way.get(place, before), other_way.get(place, before)
                    elif place == "return":
                        yield one_way[place], other_way[place]


def _end_alike(one: dict[str, ast.expr], other: dict[str, ast.expr]) -> bool:
    """Whether both ways return, or both go on."""
    return ("return" in one) == ("return" in other)


def _asks_for(name: str, test: ast.expr) -> bool:
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _asks_for(name, operand)
        case ast.Name(id=asked):
            return asked == name
    return False


def _beyond(more: ast.expr, less: ast.expr) -> list[ast.expr]:
    """What ``more`` adds to ``less``, takes from it or multiplies it by, if that is all that it does."""
    match more:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() as op, right=right):
            if ast.dump(left) == ast.dump(less):
                return [right]
            if ast.dump(right) == ast.dump(less) and isinstance(op, ast.Add | ast.Mult):
                return [left]
    return []
