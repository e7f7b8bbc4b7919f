"""What a checkpointed region hands out beside its result, for code outside of it to add up."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.identifiers import names_in
from ...facts.nodes import all_nodes, inner_nodes
from ...facts.values import Attr, Instance, Seq, Value
from ..state.gradless import carries_gradient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Function
    from ...facts.walk import Write
    from ..run import Run
    from .region import Region


class SideOutput(NamedTuple):
    """A tensor that a region stores outside of itself."""

    #: What it is stored under, as it is written.
    name: str
    #: Where it is stored.
    node: ast.AST


def side_outputs(run: Run, region: Region) -> Iterator[SideOutput]:
    """What the region stores and code outside of it adds to something, as a loss does."""
    for write in _added_up(run, region):
        yield SideOutput(write.field, write.node)
    for call in _appended(run, region):
        yield SideOutput(ast.unparse(call.node.args[0]), call.node)


def _added_up(run: Run, region: Region) -> Iterator[Write]:
    """The attributes that the region stores and that code outside of it adds to something."""
    inside: set[ast.AST] = {function.node for function in region.functions}
    for write in run.writes:
        function, owner = write.place.function, write.obj
        if function is None or function.node not in inside or write.is_item or write.place.contexts:
            continue
        others = [other.obj for other in run.writes if other.field == write.field]
        is_own = isinstance(owner, Instance) and all(_same_class(owner, other) for other in others)
        summed = (_adds(node, write.field) for node in _outside(run.program.tree, inside))
        if is_own and carries_gradient(write.value) and any(summed):
            yield write


def _appended(run: Run, region: Region) -> Iterator[Call]:
    """What the region appends to a list from outside of it, whose elements are added up there."""
    inside: set[ast.AST] = {function.node for function in region.functions}
    for call in region.method_calls("append"):
        held, function = call.receiver, call.place.function
        own = isinstance(held, Seq) and held.place is not None and _is_in(held.place.function, inside)
        if not isinstance(held, Seq | Attr) or own or function is None or len(call.args) != 1:
            continue
        name = ast.unparse(call.node.func.value) if isinstance(call.node.func, ast.Attribute) else ""
        if carries_gradient(call.args[0]) and any(_adds_up(node, name) for node in _outside(run.program.tree, inside)):
            yield call


def _is_in(function: Function | None, functions: set[ast.AST]) -> bool:
    return function is not None and function.node in functions


def _adds_up(node: ast.AST, name: str) -> bool:
    """Whether ``node`` adds up the elements of the list ``name``."""
    match node:
        case ast.Call(func=ast.Name(id="sum") | ast.Attribute(attr="stack" | "cat" | "fsum"), args=[held, *_]):
            return ast.unparse(held) == name
        case ast.For(target=ast.Name(id=element), iter=held, body=body) if ast.unparse(held) == name:
            added = (part for statement in body for part in all_nodes(statement) if isinstance(part, ast.AugAssign))
            return any(element in names_in(add.value) for add in added)
    return False


def _same_class(owner: Instance, other: Value) -> bool:
    return isinstance(other, Instance) and other.cls is owner.cls


def _outside(tree: ast.AST, functions: set[ast.AST]) -> Iterator[ast.AST]:
    """Every node that is not in the body of one of ``functions``."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if node not in functions:
            yield node
            stack += inner_nodes(node)


def _adds(node: ast.AST, field: str) -> bool:
    """Whether ``node`` is a sum with an attribute ``field`` as a term."""
    match node:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _is_term(left, field) or _is_term(right, field)
        case ast.AugAssign(op=ast.Add(), value=value):
            return _is_term(value, field)
        case ast.Call(func=ast.Name(id="sum"), args=[ast.GeneratorExp(elt=term) | ast.ListComp(elt=term), *_]):
            return _is_term(term, field)
    return False


def _is_term(node: ast.expr, field: str) -> bool:
    match node:
        case ast.Attribute(attr=name):
            return name == field
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _is_term(left, field) or _is_term(right, field)
    return False
