"""Whether anything reads what a call returns."""

from __future__ import annotations

import ast
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes, source_text
from ...facts.origin import as_written
from ...facts.surroundings import holders, parents_in
from .unused_lists import is_own_unread_list, put_into

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...facts.values import Call, Function
    from ..history import History

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_ENDS = (ast.Continue, ast.Return)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
#: Functions that put what they get one after the other into a container.
_COLLECTS = ("list", "tuple", "set", "deque", "collections.deque", "nn.ModuleList", "nn.Sequential")
#: What changes an object in place and keeps it nowhere, as a statement: a function that gets it, a method of it.
_SET_UP_BY = ("fully_shard", "replicate")
_SETS_UP = ("train", "eval", "to", "cuda", "half", "bfloat16", "float", "requires_grad_", "compile")
#: More callers than this of callers are not looked at.
_HOPS = 4


class _Fate(Enum):
    """What a function does with a value."""

    DROPPED = "nothing reads it"
    RETURNED = "its callers get it, and nothing else"
    USED = "something reads it, or may"


def is_unused(run: History, call: Call, hops: int = _HOPS) -> bool:
    """Whether what a call gives certainly goes nowhere: dropped, or bound to a name that nothing reads.

    Args:
        run: The history that ``call`` is of.
        call: The call.
        hops: How many callers to follow a result to that a function returns.
    """
    fate = _fate(run, call)
    return fate is _Fate.DROPPED or (fate is _Fate.RETURNED and hops > 0 and _is_dropped_by_callers(run, call, hops))


def dropped_at(run: History, call: Call) -> Call | None:
    """The call, ``call`` or one that led to it, whose result certainly goes nowhere; None where something may use it.

    Other callers of a function that returns the result may use it.
    """
    for way in reversed(run.path_to(call)):
        fate = _fate(run, way)
        if fate is not _Fate.RETURNED:
            return way if fate is _Fate.DROPPED else None
    return None


def _fate(run: History, call: Call) -> _Fate:
    """What the function around ``call`` does with what it gives."""
    body = call.place.function.node if call.place.function is not None else run.program.tree
    parents = parents_in(body)
    value: ast.AST = as_written(call.node)
    holder = parents.get(value)
    while _is_collected(value, holder):
        value, holder = holder or value, parents.get(holder or value)
    match holder:
        case ast.Expr():
            return _Fate.DROPPED
        case ast.Return() | ast.Lambda():
            return _Fate.RETURNED
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return _fate_of_name(name, holder, body)
        case ast.For(target=ast.Name(id=name), iter=iterated) if iterated is value:
            return _Fate.USED if name in _mentions(body) else _Fate.DROPPED
    name = put_into(value, parents) if body is not run.program.tree else ""
    return _Fate.DROPPED if name and is_own_unread_list(name, body, parents) else _Fate.USED


def _is_collected(value: ast.AST, holder: ast.AST | None) -> bool:
    """Whether ``holder`` only collects what ``value`` is: `[f(x) for x in xs]`, `list(...)`, `[*...]`."""
    match holder:
        case ast.ListComp(elt=element) | ast.SetComp(elt=element) | ast.GeneratorExp(elt=element):
            return element is value
        case ast.DictComp(value=element):
            return element is value
        case ast.IfExp(test=test):
            return test is not value
        case ast.Call(func=ast.Name() | ast.Attribute() as function, args=[given, *_]):
            return given is value and source_text(function) in _COLLECTS
        case ast.Starred():
            return True
        case ast.List(elts=[ast.Starred() as only]) | ast.Tuple(elts=[ast.Starred() as only]):
            return only is value
    return False


def _is_dropped_by_callers(run: History, call: Call, hops: int) -> bool:
    function = call.place.function
    if function is None:
        return False
    calls = run.calls_of(function)
    return bool(calls) and not _is_handed_on(run, function, calls) and all(is_unused(run, it, hops - 1) for it in calls)


def _is_handed_on(run: History, function: Function, calls: list[Call]) -> bool:
    """Whether something else than ``calls`` may call ``function``: a name that is handed on is called elsewhere."""
    called = {id(caller.node.func) for caller in calls}
    if isinstance(function.node, ast.Lambda):
        return called != {id(function.node)}
    named = (node for tree in run.program.trees for node in _names(tree).get(function.node.name, ()))
    return any(id(node) not in called for node in named)


@lru_cache(maxsize=8)
def _names(tree: ast.AST) -> dict[str, list[ast.AST]]:
    """Where ``tree`` speaks of each name: of a variable, an attribute or an import."""
    found: dict[str, list[ast.AST]] = {}
    for node in all_nodes(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()) | ast.alias(name=name):
                found.setdefault(name, []).append(node)
    return found


def _fate_of_name(name: str, statement: ast.stmt, body: ast.AST) -> _Fate:
    """What becomes of ``name``, which ``statement`` binds: nothing where no run comes from there to a read of it."""
    if isinstance(body, ast.Module) and not name.startswith("_") and not _is_of_a_loop(name, statement, body):
        return _Fate.USED  # Another module may import it.
    fate = _Fate.DROPPED
    parents = parents_in(body)
    for node in _mentions(body).get(name, ()):
        if not isinstance(node, ast.Name):
            return _Fate.USED  # `global`, `nonlocal`
        if _is_set_up(node, parents) or _is_counted(node, parents) or _is_elsewhere(node, statement, body):
            continue
        if not isinstance(parents.get(node), ast.Return):
            return _Fate.USED
        fate = _Fate.RETURNED
    return fate


def _is_counted(node: ast.Name, parents: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether the program only asks how many there are: `len(wrapped)`."""
    around = parents.get(node)
    return isinstance(around, ast.Call) and isinstance(around.func, ast.Name) and around.func.id == "len"


def _is_of_a_loop(name: str, statement: ast.stmt, body: ast.Module) -> bool:
    """Whether a loop around ``statement`` gives ``name`` another value each time: nobody imports the last one."""
    return any(_binds(holder, name) for holder in holders(statement, body) if isinstance(holder, _LOOPS))


def _is_elsewhere(node: ast.Name, statement: ast.stmt, body: ast.AST) -> bool:
    """Whether ``node`` certainly reads something else than ``statement`` binds its name to."""
    around, there = holders(statement, body), holders(node, body)
    if any(isinstance(holder, _FUNCTIONS) for holder in there):
        return False
    bound = any(_binds(holder, node.id) for holder in there if holder not in around)
    return bound or _is_of_another_way(node, statement, there, around, node.id)


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
    """Whether ``holder`` is a loop or a comprehension whose variables ``name`` is one of.

    What the first statement of a loop takes by its number, `layer = layers[i]`, is as good.
    """
    match holder:
        case ast.For(target=target, body=[ast.Assign(targets=[ast.Name() as first], value=ast.Subscript()), *_]):
            targets = [target, first]
        case ast.For(target=target) | ast.AsyncFor(target=target):
            targets = [target]
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            targets = [generator.target for generator in holder.generators]
        case _:
            return False
    return any(isinstance(node, ast.Name) and node.id == name for target in targets for node in ast.walk(target))
