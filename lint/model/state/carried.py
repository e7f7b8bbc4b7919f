"""Attributes in which a forward pass leaves what it got for the next one: a recurrent state, a memory, a potential."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.objects.classes import ancestors
from ..conditions.guards import in_mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...facts.values import Class
    from ..regions.region import Region

_Method = ast.FunctionDef | ast.AsyncFunctionDef

#: What says of a tensor how it is, not what it holds.
_METADATA = frozenset(("shape", "device", "dtype", "ndim", "size", "dim", "stride", "numel", "is_cuda", "layout"))
#: Functions that put something to what there is.
_JOINING = frozenset(("cat", "concat", "stack", "hstack", "vstack", "lerp", "add"))
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def carried(owner: Class) -> Iterator[str]:
    """The attributes that each run of a method of ``owner`` sets to something computed from its arguments.

    What is set under a condition, a cache that is built once say, may be the same in both runs.
    """
    methods = [it for cls in (owner, *ancestors(owner)) for it in cls.node.body if isinstance(it, _Method)]
    named = {method.name for method in methods}
    for method in methods:
        if method.name != "__init__":
            yield from _set_by(method, named)


def puts_back(region: Region, name: str, updating: ast.AST) -> bool:
    """Whether something in ``region`` but the method of ``updating`` sets ``name``, or resets what it does not name."""
    for function in region.functions:
        inside = [*ast.walk(function.node)]
        if updating not in inside and any(
            isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store) for node in inside
        ):
            return True
        called = (node.func for node in inside if isinstance(node, ast.Call))
        words = (
            it.attr if isinstance(it, ast.Attribute) else it.id
            for it in called
            if isinstance(it, ast.Attribute | ast.Name)
        )
        if any("reset" in word or "init" in word for word in words):
            return True
    return False


def one_by_one(targets: list[ast.expr], value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The targets, and those of a tuple, each with what it is given as far as that is written."""
    for target in targets:
        match target, value:
            case ast.Tuple(elts=parts), ast.Tuple(elts=values) if len(parts) == len(values):
                yield from zip(parts, values, strict=True)
            case ast.Tuple(elts=parts), _:
                yield from ((part, value) for part in parts)
            case _:
                yield target, value


def _set_by(method: _Method, methods: set[str]) -> Iterator[str]:
    arguments = method.args
    known = {it.arg for it in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)} - {"self"}
    for statement in _always(method.body):
        targets, value = _assigned(statement)
        if value is None:
            continue
        for target, given in one_by_one(targets, value):
            from_data = _is_computed_from(given, known)
            match target:
                case ast.Name(id=name):
                    (known.add if from_data else known.discard)(name)
                case ast.Attribute(value=ast.Name(id="self"), attr=name) if from_data and _moves(given, name, methods):
                    yield name


def _always(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that every run in train mode comes to."""
    for statement in body:
        match statement:
            case ast.If(test=test):
                taken = in_mode(test, True)
                if taken is not None:
                    yield from _always(statement.body if taken else statement.orelse)
                elif any(isinstance(node, _LEAVES) for node in ast.walk(statement)):
                    return
                else:
                    yield from _bound_in(statement)
            case ast.For() | ast.With() | ast.AsyncFor() | ast.AsyncWith() | ast.Try(handlers=[]):
                yield from _always(statement.body)
            case _:
                yield statement


def _bound_in(statement: ast.If) -> Iterator[ast.stmt]:
    """What a condition decides of local names: they may be computed from the arguments either way."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Assign) and all(isinstance(target, ast.Name) for target in node.targets):
            yield node


def _assigned(statement: ast.stmt) -> tuple[list[ast.expr], ast.expr | None]:
    match statement:
        case ast.Assign(targets=targets, value=value):
            return targets, value
        case ast.AugAssign(target=target, value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
            return [target], value
    return [], None


def _is_computed_from(value: ast.expr, names: set[str]) -> bool:
    """Whether ``value`` holds something of ``names``, and not only of which shape or on which device it is."""
    match value:
        case ast.Name(id=name):
            return name in names
        case ast.Attribute(attr=attribute) if attribute in _METADATA:
            return False
        case ast.Call(func=ast.Name(id="len" | "isinstance" | "type")):
            return False
        case ast.Compare() | ast.BoolOp():
            return False
        case ast.GeneratorExp(generators=generators) | ast.ListComp(generators=generators):
            return any(_is_computed_from(part.iter, names) for part in generators)
    return any(_is_computed_from(part, names) for part in ast.iter_child_nodes(value) if isinstance(part, ast.expr))


def _moves(value: ast.expr, name: str, methods: set[str]) -> bool:
    """Whether ``value``, computed from data, is another one each time: what is made of the attribute may not be.

    A module that is called with both makes a new one (`self.cell(x, self.h)`), a method may only move or extend it.
    """
    own = any(isinstance(node, ast.Attribute) and node.attr == name for node in ast.walk(value))
    match value:
        case ast.BinOp():
            return True
        case ast.Call(func=ast.Attribute(attr=function) | ast.Name(id=function)) if function in _JOINING:
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=called)) if called not in methods:
            return True
    return not own
