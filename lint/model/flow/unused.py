"""Whether anything reads what a call returns."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes
from ...facts.surroundings import holders, parents_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...facts.values import Call
    from ..history import History

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp)
_ENDS = (ast.Continue, ast.Return)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
#: What changes an object in place and keeps it nowhere, as a statement: a function that gets it, a method of it.
_SET_UP_BY = ("fully_shard", "replicate")
_SETS_UP = ("train", "eval", "to", "cuda", "half", "bfloat16", "float", "requires_grad_", "compile")
#: More callers than this of callers are not looked at.
_HOPS = 4


def is_unused(run: History, call: Call, hops: int = _HOPS) -> bool:
    """Whether what a call gives certainly goes nowhere: dropped, or bound to a name that nothing reads.

    Args:
        run: The history that ``call`` is of.
        call: The call.
        hops: How many callers to follow a result to that a function returns.
    """
    body = call.place.function.node if call.place.function is not None else run.program.tree
    parents = parents_in(body)
    value: ast.AST = call.node
    statement = parents.get(value)
    if isinstance(statement, _COMPREHENSIONS) and statement.elt is value:
        value, statement = statement, parents.get(statement)
    match statement:
        case ast.Expr():
            return True
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return _is_dead(name, statement, body)
        case ast.Return() if value is call.node and hops:
            return _is_dropped_by_callers(run, call, hops)
    return False


def _is_dropped_by_callers(run: History, call: Call, hops: int) -> bool:
    function = call.place.function
    if function is None or isinstance(function.node, ast.Lambda):
        return False
    calls = run.calls_of(function)
    # A name that is handed on is called somewhere else.
    called = {id(caller.node.func) for caller in calls}
    named = (node for tree in run.program.trees for node in _names(tree).get(function.node.name, ()))
    handed_on = any(id(node) not in called for node in named)
    return bool(calls) and not handed_on and all(is_unused(run, caller, hops - 1) for caller in calls)


@lru_cache(maxsize=8)
def _names(tree: ast.AST) -> dict[str, list[ast.AST]]:
    """Where ``tree`` speaks of each name: of a variable, an attribute or an import."""
    found: dict[str, list[ast.AST]] = {}
    for node in all_nodes(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()) | ast.alias(name=name):
                found.setdefault(name, []).append(node)
    return found


def _is_dead(name: str, statement: ast.stmt, body: ast.AST) -> bool:
    """Whether no run comes from ``statement``, which binds ``name``, to a place that reads it."""
    if isinstance(body, ast.Module) and not name.startswith("_"):
        return False  # Another module may import it.
    around = holders(statement, body)
    parents = parents_in(body)
    for node in _mentions(body).get(name, ()):
        if not isinstance(node, ast.Name):
            return False  # `global`, `nonlocal`
        if _is_set_up(node, parents):
            continue
        there = holders(node, body)
        nested = any(isinstance(holder, _FUNCTIONS) for holder in there)
        elsewhere = any(_binds(holder, name) for holder in there if holder not in around)
        if nested or not (elsewhere or _is_of_another_way(node, statement, there, around, name)):
            return False
    return True


def _is_set_up(node: ast.Name, parents: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether a statement only changes in place what ``node`` names: `fully_shard(block)`, `block.train()`."""
    parent = parents.get(node)
    call = parents.get(parent) if isinstance(parent, ast.Attribute) else parent
    if not isinstance(call, ast.Call) or not isinstance(parents.get(call), ast.Expr):
        return False
    match call.func, call.args:
        case ast.Attribute(value=base, attr=method), _ if base is node:
            return method in _SETS_UP
        case ((ast.Name(id=function) | ast.Attribute(attr=function)), [first, *_]):
            return first is node and function in _SET_UP_BY
    return False


@lru_cache(maxsize=256)
def _mentions(body: ast.AST) -> dict[str, list[ast.AST]]:
    """Where ``body`` reads each name, or declares it to be one of another scope."""
    found: dict[str, list[ast.AST]] = {}
    for node in all_nodes(body):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.setdefault(node.id, []).append(node)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            for name in node.names:
                found.setdefault(name, []).append(node)
    return found


def _is_of_another_way(
    node: ast.Name, statement: ast.stmt, there: list[ast.AST], around: list[ast.AST], name: str
) -> bool:
    """Whether ``node`` stands before ``statement`` or is passed over, and the loop that both are in binds ``name``."""
    shared = [holder for holder in around if isinstance(holder, _LOOPS) and holder in there]
    if not all(_binds(loop, name) for loop in shared[:1]):
        return False
    end = (statement.end_lineno or statement.lineno, statement.end_col_offset or 0)
    return (node.lineno, node.col_offset) < end or _is_passed_over(node, statement, there, around)


def _is_passed_over(node: ast.Name, statement: ast.stmt, there: list[ast.AST], around: list[ast.AST]) -> bool:
    """Whether what comes to ``statement`` does not go on to ``node``: the other branch, or behind a `continue`."""
    inside: ast.AST = statement
    for holder in around:
        if isinstance(holder, (*_LOOPS, ast.Try)):
            return False
        if isinstance(holder, ast.If):
            block = holder.body if inside in holder.body else holder.orelse
            is_beside = holder not in there or not any(part in there for part in block)
            if is_beside and (holder in there or isinstance(block[-1], _ENDS)):
                return True
        inside = holder
    return False


def _binds(holder: ast.AST, name: str) -> bool:
    """Whether ``holder`` is a loop or a comprehension whose variables ``name`` is one of."""
    match holder:
        case ast.For(target=target) | ast.AsyncFor(target=target):
            targets = [target]
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            targets = [generator.target for generator in holder.generators]
        case _:
            return False
    return any(isinstance(node, ast.Name) and node.id == name for target in targets for node in ast.walk(target))
