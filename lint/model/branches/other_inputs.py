"""A checkpointed and a plain call of one block that take their input from elsewhere, or from the same, but detached."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes, is_inside
from .result_differences import Difference

if TYPE_CHECKING:
    from .paired_calls import Pair, Side


def other_input(pair: Pair) -> Difference | None:
    """How the first arguments differ where that surely changes what is learned; None where it may not."""
    mine, plain, _ = pair
    here, there = _first(mine), _first(plain)
    if here is None or there is None:
        return None
    if (detached := _detached(here)) is not None and ast.unparse(detached) == ast.unparse(there):
        return Difference(f"the checkpointed one detaches `{ast.unparse(there)}`")
    if (detached := _detached(there)) is not None and ast.unparse(detached) == ast.unparse(here):
        return Difference(f"the plain one detaches `{ast.unparse(here)}`")
    if isinstance(here, ast.Name) and isinstance(there, ast.Name) and _starts_anew(mine, plain, here.id, there.id):
        return Difference(f"the checkpointed one gets `{here.id}` in each iteration, the plain one `{there.id}`")
    return None


def _first(side: Side) -> ast.expr | None:
    """The input of the block; what a partial or a keyword gives is none."""
    return next((argument.node for argument in side.arguments if argument.position == 0), None)


def _detached(node: ast.expr) -> ast.expr | None:
    match node:
        case (
            ast.Call(func=ast.Attribute(value=inner, attr="detach"), args=[]) | ast.Attribute(value=inner, attr="data")
        ):
            return inner
    return None


def _starts_anew(mine: Side, plain: Side, given: str, carried: str) -> bool:
    """Whether a loop gives the result of one block to the next in the plain branch, and forgets it in the other."""
    loop = plain.place.loops[-1] if plain.place.loops else None
    if given == carried or not isinstance(loop, ast.For) or not is_inside(mine.call.node, loop):
        return False
    bound = [node for node in all_nodes(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    if any(node.id == given for node in bound):
        return False
    stored = [node for node in all_nodes(loop) if isinstance(node, ast.Assign) and _is_name(node.targets, carried)]
    return all(any(node.value is side.call.node for node in stored) for side in (mine, plain))


def _is_name(targets: list[ast.expr], name: str) -> bool:
    return len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id == name
