"""Blocks that swallow exceptions, and what fails behind them when one of torch ends the recomputation in there."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.identifiers import is_own_attribute, names_in
from ...facts.nodes import all_nodes
from ...facts.parameters import parameter_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...facts.values import Function


def swallowing_block(
    function: Function, swallows: Callable[[ast.With], ast.AST | None], computes: Callable[[ast.AST], bool]
) -> ast.AST | None:
    """What swallows the end of the recomputation in ``function``, so that the rest of it fails.

    Args:
        function: Where the computation ends.
        swallows: Gives what swallows exceptions at a `with`, None where nothing does.
        computes: Whether running a statement may save tensors.
    """
    body = function.node.body if isinstance(function.node.body, list) else []
    for position, block in enumerate(body):
        if not isinstance(block, ast.With) or not any(map(computes, block.body)):
            continue
        before, after = body[:position], body[position + 1 :]
        if _falls_back(block, before, after, computes) or _lacks_result(function, block, before, after, computes):
            return swallows(block)
    return None


def _falls_back(
    block: ast.With, before: Sequence[ast.stmt], after: Sequence[ast.stmt], computes: Callable[[ast.AST], bool]
) -> bool:
    """Whether what stands ``after`` the block runs a layer only where the block failed."""
    if isinstance(block.body[-1], ast.Return):
        return any(map(_runs_layer, after))
    match after:
        case [
            ast.If(test=ast.Compare(left=ast.Name(id=name), ops=[ast.Is()], comparators=[ast.Constant(None)])),
            *rest,
        ]:
            is_none = any(_sets_none(statement, name) for statement in before)
            return is_none and name in _bound(block.body) and _runs_layer(after[0]) and not any(map(computes, rest))
    return False


def _lacks_result(
    function: Function,
    block: ast.With,
    before: Sequence[ast.stmt],
    after: Sequence[ast.stmt],
    computes: Callable[[ast.AST], bool],
) -> bool:
    """Whether what stands ``after`` the block reads what its last computation alone binds."""
    last = max(index for index, statement in enumerate(block.body) if computes(statement))
    bound = _bound(block.body[last:]) - _bound([*before, *block.body[:last]]) - {*parameter_names(function.node)}
    read = {name for statement in after for name in names_in(statement)}
    return not bound.isdisjoint(read) and not any(map(computes, after))


def _bound(statements: Sequence[ast.stmt]) -> set[str]:
    nodes = (node for statement in statements for node in all_nodes(statement))
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _sets_none(statement: ast.stmt, name: str) -> bool:
    match statement:
        case ast.Assign(targets=[ast.Name(id=bound)], value=ast.Constant(None)):
            return bound == name
    return False


def _runs_layer(statement: ast.AST) -> bool:
    """Whether it keeps what a layer gives: `return self.slow(x)`; a method of a tensor may save nothing."""
    kept = [node for node in all_nodes(statement) if isinstance(node, ast.Return | ast.Assign)]
    called = (node.func for it in kept for node in all_nodes(it) if isinstance(node, ast.Call))
    return any(isinstance(func, ast.Name) or is_own_attribute(func) for func in called)
