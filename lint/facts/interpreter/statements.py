"""Statements in program order. ``execute`` tells whether control leaves the block for good."""

from __future__ import annotations

import ast
from functools import reduce
from typing import TYPE_CHECKING, Any

from ..exclusion import pattern_test
from ..objects.annotations import annotated, narrowed
from ..objects.containers import elements, iterate, length_of
from ..scopes import Scope
from ..values import UNKNOWN, Call, Class, Const, Dict, Function, Guard, Loop, Seq, Unknown, Value, join_under
from ..walk import Named, Returned, Walk
from .bindings import assign, write
from .conditions import decided
from .imports import bind_import, bind_import_from

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def execute(walk: Walk, body: Sequence[ast.stmt]) -> bool:
    """Walk ``body``; True when it surely returns, raises, breaks or continues."""
    for statement in body:
        handler = _HANDLERS.get(type(statement))
        if handler is None:
            for child in ast.iter_child_nodes(statement):
                walk.evaluate(child)
        elif handler(walk, statement):
            return True
    return False


def _expression(walk: Walk, node: ast.Expr) -> None:
    walk.evaluate(node.value)
    if isinstance(node.value, ast.Attribute):
        walk.program.named.append(Named(node.value, walk.place, walk.program.next_order()))


def _assign(walk: Walk, node: ast.Assign) -> None:
    value = walk.evaluate(node.value)
    for target in node.targets:
        assign(walk, target, value, node)


def _annotated(walk: Walk, node: ast.AnnAssign) -> None:
    if node.value is not None:
        value = narrowed(walk.evaluate(node.value), annotated(node.annotation, walk.scope))
        assign(walk, node.target, value, node)


def _augmented(walk: Walk, node: ast.AugAssign) -> None:
    value = walk.evaluate(node.value)
    match node.target:
        case ast.Name(id=name):
            walk.scope.bind(name, _added(walk, name, value, node))
        case ast.Attribute(value=base, attr=name):
            write(walk, walk.evaluate(base), name, Unknown(node), node, augmented=True)
        case ast.Subscript():
            held = walk.evaluate(node.target.value)
            if isinstance(held, Dict) and isinstance(value, Value):
                held.open = True


def _added(walk: Walk, name: str, value: Value, node: ast.AugAssign) -> Value:
    """What a name holds after `layers += [...]`; unknown for anything but lists."""
    held = walk.scope.look_up(name)
    if not isinstance(held, Seq) or not isinstance(node.op, ast.Add):
        return Unknown(node)
    is_open = held.open or bool(walk.place.loops) or not isinstance(value, Seq) or value.open
    return Seq(held.kind, [*held.items, *elements(value)], is_open, node, walk.place)


def _delete(walk: Walk, node: ast.Delete) -> None:
    for target in node.targets:
        if isinstance(target, ast.Name):
            walk.scope.bind(target.id, UNKNOWN)
        elif isinstance(target, ast.Subscript):
            held = walk.evaluate(target.value)
            if isinstance(held, Dict):
                held.open = True


def _if(walk: Walk, node: ast.If) -> bool:
    test = walk.evaluate(node.test)
    known = decided(walk, node.test, test)
    if known is not None:
        return execute(walk, node.body if known else node.orelse)
    if _is_main(node.test):
        return execute(walk, node.orelse if walk.program.importing else node.body)
    outside, names = walk.place, dict(walk.scope.names)
    walk.under(Guard(node.test, test, True))
    body_ends = execute(walk, node.body)
    after_body, walk.scope.names = walk.scope.names, names
    walk.place = outside
    walk.under(Guard(node.test, test, False))
    else_ends = execute(walk, node.orelse)
    walk.place = outside
    if body_ends and not else_ends:
        # What follows runs only when the condition was false.
        walk.under(Guard(node.test, test, False, _stops(node.body)))
    elif else_ends and not body_ends:
        walk.under(Guard(node.test, test, True, _stops(node.orelse)))
        walk.scope.names = after_body
    else:
        branches = (Guard(node.test, test, True),), (Guard(node.test, test, False),)
        walk.scope.names = joined(after_body, walk.scope.names, branches)
    return body_ends and else_ends


def _stops(body: Sequence[ast.stmt]) -> bool:
    """Whether a block that is left for good ends the program, by an exception."""
    match body[-1] if body else None:
        case ast.Raise():
            return True
        case ast.If(body=inner, orelse=other):
            return _stops(inner) and _stops(other)
    return False


def _is_main(test: ast.expr) -> bool:
    match test:
        case ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()]):
            return True
    return False


def joined(
    left: dict[str, Value],
    right: dict[str, Value],
    conditions: tuple[tuple[Guard, ...], tuple[Guard, ...]] = ((), ()),
) -> dict[str, Value]:
    """The names after two branches meet, which run under ``conditions``.

    A name only one of them binds must come from there to be read at all.
    """
    names = {**left, **right}
    for name, value in right.items():
        other = left.get(name)
        if other is not None and other is not value:
            names[name] = join_under((other, conditions[0]), (value, conditions[1]))
    return names


def _loop(walk: Walk, node: Loop, body: Callable[[], bool]) -> bool:
    outside, names = walk.place, dict(walk.scope.names)
    walk.place = outside._replace(loops=(*outside.loops, node))
    body()
    walk.place = outside
    walk.scope.names = joined(names, walk.scope.names)
    return False


def _for(walk: Walk, node: ast.For | ast.AsyncFor) -> bool:
    passed = walk.evaluate(node.iter)
    element = iterate(passed, node.iter)
    walk.program.turns[node] = length_of(passed)

    def body() -> bool:
        assign(walk, node.target, element, node)
        return execute(walk, node.body)

    _loop(walk, node, body)
    return execute(walk, node.orelse)


def _while(walk: Walk, node: ast.While) -> bool:
    walk.evaluate(node.test)
    _loop(walk, node, lambda: execute(walk, node.body))
    return execute(walk, node.orelse)


def _with(walk: Walk, node: ast.With | ast.AsyncWith) -> bool:
    outside = walk.place
    entered = []
    for item in node.items:
        value = walk.evaluate(item.context_expr)
        entered.append(value)
        if item.optional_vars is not None:
            assign(walk, item.optional_vars, value, node)
    walk.place = outside._replace(contexts=(*outside.contexts, *entered))
    ends = execute(walk, node.body)
    walk.place = outside
    return ends


def _try(walk: Walk, node: ast.Try) -> bool:
    outside, names = walk.place, dict(walk.scope.names)
    walk.place = outside._replace(tries=(*outside.tries, node))
    ends = execute(walk, node.body) or execute(walk, node.orelse)
    walk.place = outside
    after = None if ends else walk.scope.names
    for handler in node.handlers:
        walk.scope.names = dict(names)
        if handler.name:
            walk.scope.bind(handler.name, Unknown(handler))
        walk.place = outside
        walk.under(Guard(handler, UNKNOWN, True))
        if not execute(walk, handler.body):
            after = walk.scope.names if after is None else joined(after, walk.scope.names)
    walk.place = outside
    walk.scope.names = names if after is None else after
    return execute(walk, node.finalbody) or after is None


def _match(walk: Walk, node: ast.Match) -> bool:
    subject = walk.evaluate(node.subject)
    around = walk.place
    names = walk.scope.names
    #: The names after each way through the statement.
    ways: list[dict[str, Value]] = []
    for case in node.cases:
        walk.scope.names = dict(names)
        test = pattern_test(node.subject, case.pattern)
        fits = _fits(walk, case, test)
        if fits is False:
            continue
        before = walk.place
        _capture(walk, case.pattern)
        walk.under(Guard(test, subject, True))
        if not execute(walk, case.body):
            ways.append(walk.scope.names)
        walk.place = before
        if fits:
            break
        if test is not case.pattern and case.guard is None:
            # The cases that follow are tried only when this one does not fit.
            walk.under(Guard(test, subject, False))
    else:
        ways.append(names)
    walk.place = around
    walk.scope.names = reduce(joined, ways) if ways else names
    return not ways


def _capture(walk: Walk, pattern: ast.pattern) -> None:
    for part in ast.walk(pattern):
        if isinstance(part, ast.MatchAs | ast.MatchStar) and part.name:
            walk.scope.bind(part.name, Unknown(part))


def _fits(walk: Walk, case: ast.match_case, test: ast.AST) -> bool | None:
    """Whether the case is surely taken when control comes to it, or surely not; None when that is open."""
    if isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None:
        return True if case.guard is None else None
    if not isinstance(test, ast.Compare):
        return None
    known = decided(walk, test, walk.evaluate(test))
    return None if known and case.guard is not None else known


def _return(walk: Walk, node: ast.Return) -> bool:
    value = walk.evaluate(node.value) if node.value is not None else Const(None, node)
    walk.returned.append(value)
    function = walk.place.function
    if function is not None:
        walk.program.returns.setdefault(function.node, []).append(Returned(value, node, walk.place))
    return True


def _leave(walk: Walk, node: ast.Raise | ast.Break | ast.Continue) -> bool:
    for child in ast.iter_child_nodes(node):
        walk.evaluate(child)
    return True


def _function(walk: Walk, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    function = Function(node, walk.scope, walk.place)
    function.decorators = [walk.evaluate(decorator) for decorator in node.decorator_list]
    walk.program.define(function)
    walk.scope.bind(node.name, function if walk.scope.is_class else _decorated(walk, function))


def _decorated(walk: Walk, function: Function) -> Value:
    """What its name means: the function that a decorator of the file makes of it; else ``function`` itself."""
    match function.decorators, getattr(function.node, "decorator_list", []):
        case [Function() as decorator], [ast.expr() as written]:
            node = ast.copy_location(ast.Call(written, [], []), written)
            call = Call(node, decorator, walk.place, walk.program.next_order())
            call.args = [function]
            made = walk.follow(decorator, call, None)
            return made if isinstance(made, Function) else function
    return function


def _class(walk: Walk, node: ast.ClassDef) -> None:
    cls = Class(node, [walk.evaluate(base) for base in node.bases], walk.place, walk.scope)
    for decorator in node.decorator_list:
        walk.evaluate(decorator)
    outside = walk.scope
    walk.scope = Scope(node, outside, is_class=True)
    execute(walk, node.body)
    cls.body = walk.scope.names
    walk.scope = outside
    for member in cls.body.values():
        if isinstance(member, Function) and member.owner is None:
            member.owner = cls
    walk.program.classes.append(cls)
    walk.scope.bind(node.name, cls)


def _declare(walk: Walk, node: ast.Global | ast.Nonlocal) -> None:
    walk.scope.outer.update(node.names)


_HANDLERS: dict[type, Callable[[Walk, Any], bool | None]] = {
    ast.Expr: _expression,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Delete: _delete,
    ast.If: _if,
    ast.For: _for,
    ast.AsyncFor: _for,
    ast.While: _while,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Try: _try,
    ast.TryStar: _try,
    ast.Match: _match,
    ast.Return: _return,
    ast.Raise: _leave,
    ast.Break: _leave,
    ast.Continue: _leave,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ClassDef: _class,
    ast.Import: bind_import,
    ast.ImportFrom: bind_import_from,
    ast.Global: _declare,
    ast.Nonlocal: _declare,
}
