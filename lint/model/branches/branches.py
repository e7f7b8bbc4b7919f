"""Branches compared by what they compute, not by how they are written."""

from __future__ import annotations

import ast
import copy
import re
from typing import TYPE_CHECKING, Any

from ...facts.composed import composed
from ...facts.surroundings import parents_in
from ..events import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ...facts.values import FunctionNode

#: Methods that give the value they are called on.
_SAME_VALUE = frozenset(("clone", "contiguous", "detach", "requires_grad_", "alias", "view_as", "type_as"))
#: Contexts that change no value.
_TRANSPARENT = re.compile(r"no_grad|enable_grad|set_grad_enabled|nullcontext|record_function|profile|nvtx|range")
_CHECKPOINTS = re.compile(r"checkpoint|ckpt|remat", re.IGNORECASE)


def computes_the_same(left: Sequence[ast.stmt], right: Sequence[ast.stmt], function: FunctionNode) -> bool:
    """Whether two branches leave the same behind: names, what is returned, attributes that are read.

    Calls whose result nobody takes are no part of it, and a checkpoint computes what its function does.

    Args:
        left: The statements of one branch.
        right: Those of the other.
        function: The function that both are in.
    """
    mine, other = (_dumped(effects(branch)) for branch in (left, right))
    leaves = "return" in mine and "return" in other
    read = {ast.unparse(node) for node in ast.walk(function) if isinstance(node, ast.Attribute) and _is_load(node)}
    return all(
        mine.get(place, _before(place)) == other.get(place, _before(place))
        for place in mine.keys() | other.keys()
        if (place in read if "." in place else place == "return" or not leaves)
    )


def same_value(left: ast.expr, right: ast.expr) -> bool:
    """Whether two expressions give the same value."""
    return _dump(left, {}) == _dump(right, {})


def branches(node: ast.If, function: FunctionNode) -> tuple[Sequence[ast.stmt], Sequence[ast.stmt]]:
    """The two ways that ``node`` goes; when one leaves the function or the iteration, the other is what follows."""
    if node.orelse or not isinstance(node.body[-1], ast.Return | ast.Continue):
        return node.body, node.orelse
    return node.body, _following(node, function)


def only_acts(body: Sequence[ast.stmt]) -> bool:
    """Whether statements of ``body`` are there for what they do: calls by themselves, stores in objects."""
    return any(_acts(node) for statement in body for node in ast.walk(statement))


def _acts(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Call()):
            return True
        case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
            return True
    return False


def _following(node: ast.If, function: FunctionNode) -> list[ast.stmt]:
    outer = parents_in(function).get(node)
    for field in ("body", "orelse", "finalbody"):
        block = getattr(outer, field, None)
        if isinstance(block, list) and node in block:
            return block[block.index(node) + 1 :]
    return []


def _dumped(found: Mapping[str, ast.expr]) -> dict[str, str]:
    return {place: ast.dump(value) for place, value in found.items()}


def effects(body: Sequence[ast.stmt]) -> dict[str, ast.expr]:
    """By the name or attribute that is bound (`return` for the result): what to, in terms of what was before."""
    bound: dict[str, ast.expr] = {}
    for statement in _inlined(body):
        match statement:
            case ast.Return(value=value):
                bound["return"] = _plain(value or ast.Constant(None), bound)
                break
            case ast.Assign(targets=[target], value=value):
                bound |= dict(_bind(target, _plain(value, bound)))
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                bound |= dict(_bind(target, _plain(value, bound)))
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                bound[name] = _plain(ast.BinOp(ast.Name(name, ast.Load()), op, value), bound)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) as call):
                if method.endswith("_") and method not in _SAME_VALUE:
                    bound[name] = _plain(call, bound)
            case _ if _computes(statement):
                bound[f"<{ast.unparse(statement)}>"] = ast.Constant(True)
    return bound


def _computes(statement: ast.stmt) -> bool:
    """Whether something that is not understood binds names or returns: a loop, a condition inside."""
    kinds = ast.Return | ast.Assign | ast.AugAssign | ast.NamedExpr
    return any(isinstance(part, kinds) for part in ast.walk(statement))


def _inlined(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, those in contexts that change no value among them."""
    for statement in body:
        if isinstance(statement, ast.With) and all(_TRANSPARENT.search(ast.unparse(item)) for item in statement.items):
            yield from _inlined(statement.body)
        else:
            yield statement


def _bind(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Starred):
        yield from _bind(target.value, value)
    elif isinstance(target, ast.Tuple | ast.List):
        for index, part in enumerate(target.elts):
            yield from _bind(part, ast.Subscript(value, ast.Constant(index), ast.Load()))
    else:
        yield ast.unparse(target), value


def _before(place: str) -> str:
    """What a name or an attribute holds when nothing binds it."""
    return ast.dump(ast.parse(place, mode="eval").body) if place != "return" and place[0] != "<" else ""


def _plain(value: ast.expr, bound: Mapping[str, ast.expr]) -> ast.expr:
    """``value`` in terms of what was before ``bound``, without what changes no value."""
    plain: ast.expr = _Plain(bound).visit(copy.deepcopy(value))
    return plain


def _dump(value: ast.expr, bound: Mapping[str, ast.expr]) -> str:
    return ast.dump(_plain(value, bound))


class _Plain(ast.NodeTransformer):
    def __init__(self, bound: Mapping[str, ast.expr]) -> None:
        self._bound = bound

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._bound.get(node.id, node) if isinstance(node.ctx, ast.Load) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        found = self._bound.get(ast.unparse(node)) if isinstance(node.ctx, ast.Load) else None
        return found if found is not None else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> Any:
        if is_checkpoint(node):
            own = [keyword for keyword in node.keywords if keyword.arg not in Checkpoint.OWN]
            return self.visit(ast.Call(node.args[0], node.args[1:], own))
        if isinstance(node.func, ast.Attribute) and node.func.attr in _SAME_VALUE:
            return self.visit(node.func.value)
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        match node:
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=ast.Constant(value=0 | 0.0)):
                return self.visit(left)
            case ast.BinOp(left=left, op=ast.Mult() | ast.Div(), right=ast.Constant(value=1 | 1.0)):
                return self.visit(left)
        return self.generic_visit(node)


def is_checkpoint(node: ast.Call) -> bool:
    """Whether a call looks like that of a checkpoint function, whoever provides it."""
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            named = _CHECKPOINTS.search(name) is not None
        case _:
            named = False
    return bool(node.args) and (named or any(keyword.arg == "use_reentrant" for keyword in node.keywords))


def _is_load(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Load)


def is_read(name: str, function: FunctionNode, known: Mapping[str, object]) -> bool:
    """Whether ``function`` reads its parameter ``name`` when the parameters in ``known`` hold those constants."""
    if not isinstance(function.body, list):
        return _reads(function.body, name, known)
    return any(_reads(statement, name, known) for statement in _come_to(function.body, known))


def _come_to(body: list[ast.stmt], known: Mapping[str, object]) -> Iterator[ast.stmt]:
    """The statements of ``body`` before one that surely leaves it."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If) and (answer := _decided(statement.test, known)) is not None:
            taken = statement.body if answer else statement.orelse
            if taken and isinstance(taken[-1], ast.Return | ast.Raise):
                return


def _reads(node: ast.AST, name: str, known: Mapping[str, object]) -> bool:
    match node:
        case ast.Name(id=found):
            return found == name
        case ast.If(test=test) | ast.IfExp(test=test) if (answer := _decided(test, known)) is not None:
            taken = node.body if answer else node.orelse
            parts = taken if isinstance(taken, list) else [taken]
            return any(_reads(part, name, known) for part in (test, *parts))
    return any(_reads(part, name, known) for part in ast.iter_child_nodes(node))


def _decided(test: ast.expr, known: Mapping[str, object]) -> bool | None:
    """What a condition on parameters comes out as."""
    return composed(test, lambda part: _part_decided(part, known))


def _part_decided(part: ast.AST, known: Mapping[str, object]) -> bool | None:
    match part:
        case ast.Name(id=name) if name in known:
            return bool(known[name])
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(None)]):
            return (known[name] is None) is isinstance(op, ast.Is) if name in known else None
    return None
