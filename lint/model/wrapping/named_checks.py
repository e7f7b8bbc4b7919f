"""Check functions that ask for the name of a module's class: which names they accept."""

from __future__ import annotations

import ast
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes
from ...facts.objects.attributes import get_attribute
from ...facts.parameters import defaults, positional_names
from ...facts.straight import only_value
from ...facts.values import Call, Const, Dict, Function, Instance, Method, Partial, Ref, Result, Seq
from ..texts.text_values import OpenValueError, TextValues

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ...facts.values import Value

_NAMES = frozenset(("__name__", "__qualname__"))
#: Branches that are both followed, iterations of a loop, and helpers that call one another.
_WAYS, _ITERATIONS, _DEPTH = 16, 64, 3
#: Put before and behind a name, it makes another one.
_OTHER = "Nothing"


class NamedCheck:
    """A check function with what its call, its closure or its object gives, asked for one name after the other."""

    def __init__(self, function: Function, given: Mapping[str, Value], subject: str, depth: int = 0) -> None:
        self._function = function
        self._given = given
        #: The parameter that gets the module.
        self._subject = subject
        self._depth = depth
        self._answers: dict[str, bool] = {}

    @property
    def node(self) -> ast.AST:
        """The expression that it consists of, or the whole function."""
        return only_value(self._function.node) or self._function.node

    def accepts(self, name: str) -> bool:
        """Whether a module of a class of this name may pass."""
        if name not in self._answers:
            self._answers[name] = any(outcome is not False for outcome in self._outcomes(name))
        return self._answers[name]

    @cached_property
    def exact(self) -> tuple[str, ...]:
        """The names that it accepts, where it accepts whole names only; empty otherwise."""
        found = [text for text in sorted(self._texts) if text.isidentifier() and self.accepts(text)]
        others = [_OTHER, *(_OTHER + text for text in found), *(text + _OTHER for text in found)]
        return () if any(map(self.accepts, others)) else tuple(found)

    @property
    def _statements(self) -> list[ast.stmt]:
        node = self._function.node
        return [ast.Return(node.body)] if isinstance(node, ast.Lambda) else node.body

    @cached_property
    def _texts(self) -> frozenset[str]:
        """The texts that stand in the function, and in what it reads."""
        nodes = list(all_nodes(self._function.node))
        read = [self._look_up(node.id) for node in nodes if isinstance(node, ast.Name)]
        read += [self._value(node) for node in nodes if isinstance(node, ast.Attribute)]
        nodes += [part for value in read if (shown := _expression(value)) is not None for part in all_nodes(shown)]
        return frozenset(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))

    @cached_property
    def asks_for_name(self) -> bool:
        """Whether the name of the class takes part at all."""
        return any(self._is_name(node) for node in all_nodes(self._function.node)) or any(
            helper.asks_for_name for helper in self._helpers
        )

    @property
    def _helpers(self) -> Iterator[NamedCheck]:
        for node in all_nodes(self._function.node):
            if isinstance(node, ast.Call) and self._depth < _DEPTH:
                helper = self._helper(node)
                if helper is not None:
                    yield helper

    def _helper(self, call: ast.Call) -> NamedCheck | None:
        """The function of the program that ``call`` gives the module."""
        held = self._value(call.func)
        match call.args:
            case [ast.Name(id=name)] if name == self._subject and not call.keywords and self._depth < _DEPTH:
                return named_check(held, self._depth + 1) if held is not None else None
        return None

    def _is_name(self, node: ast.AST) -> bool:
        """Whether ``node`` is `type(module).__name__`, `module.__class__.__name__` or `module._get_name()`."""
        match node:
            case ast.Attribute(value=ast.Call(func=ast.Name("type"), args=[ast.Name(id=asked)]), attr=attribute):
                return asked == self._subject and attribute in _NAMES
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id=asked), attr="__class__"), attr=attribute):
                return asked == self._subject and attribute in _NAMES
            case ast.Call(func=ast.Attribute(value=ast.Name(id=asked), attr="_get_name"), args=[]):
                return asked == self._subject
        return False

    def _meant(self, node: ast.expr, name: str) -> ast.expr | None:
        """What a variable, an attribute or a call stands for where the class is called ``name``."""
        if self._is_name(node):
            return ast.Constant(name)
        if isinstance(node, ast.Call):
            helper = self._helper(node)
            if helper is None or not helper.asks_for_name:
                return None
            outcomes = {*helper._outcomes(name)}
            return ast.Constant(outcomes.pop()) if len(outcomes) == 1 and None not in outcomes else None
        if isinstance(node, ast.Name) and node.id not in self._given and node.id in self._defaults:
            return self._defaults[node.id]
        return _expression(self._value(node))

    @cached_property
    def _defaults(self) -> dict[str, ast.expr]:
        return defaults(self._function.node)

    def _value(self, node: ast.expr) -> Value | None:
        match node:
            case ast.Name(id=name):
                return self._look_up(name)
            case ast.Attribute(value=inner, attr=attribute):
                base = self._value(inner)
                return get_attribute(base, attribute, node) if isinstance(base, Instance) else None
        return None

    def _look_up(self, name: str) -> Value | None:
        if name in self._given or name == self._subject:
            return self._given.get(name)
        return None if name in _bound_in(self._function.node) else self._function.scope.look_up(name)

    def _outcomes(self, name: str) -> list[bool | None]:
        """What the function may return for this name, None for what is not known, on all ways through it."""
        values = TextValues({}, lambda node: self._meant(node, name))
        waiting: list[tuple[TextValues, list[ast.stmt]]] = [(values, [*self._statements])]
        found: list[bool | None] = []
        while waiting and len(found) < _WAYS:
            here, statements = waiting.pop()
            found.append(_follow(here, statements, waiting))
        return [*found, None] if waiting else found


def _follow(
    values: TextValues, statements: list[ast.stmt], waiting: list[tuple[TextValues, list[ast.stmt]]]
) -> bool | None:
    """Run ``statements`` up to a `return`; what an open condition leaves out is put to what is ``waiting``."""
    while statements:
        statement = statements.pop(0)
        match statement:
            case ast.Return(value=given):
                return _truth(values, given) if given is not None else False
            case ast.If(test=test, body=body, orelse=orelse):
                taken = _truth(values, test)
                if taken is None:
                    waiting.append((values.copy(), [*orelse, *statements]))
                statements = [*(body if taken is not False else orelse), *statements]
            case ast.Assign(targets=[ast.Name(id=name)], value=given):
                values.assign(name, given)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as given):
                values.assign(name, given)
            case ast.For(target=ast.Name(id=name), iter=passed, body=body, orelse=[]):
                unrolled = _unrolled(values, name, passed, body)
                if unrolled is None:
                    return None
                statements = [*unrolled, *statements]
            case ast.Expr() | ast.Pass() | ast.Assert():
                continue
            case _:
                return None
    return False


def _truth(values: TextValues, node: ast.expr) -> bool | None:
    try:
        return bool(values.of(node))
    except OpenValueError:
        return None


def _unrolled(values: TextValues, name: str, passed: ast.expr, body: list[ast.stmt]) -> list[ast.stmt] | None:
    """The iterations of a loop one after the other; None where it is left early or what it passes is open."""
    try:
        items = [*values.of(passed)]
    except (OpenValueError, TypeError):
        return None
    leaves = any(isinstance(part, ast.Break | ast.Continue) for statement in body for part in all_nodes(statement))
    if leaves or len(items) > _ITERATIONS or not all(isinstance(item, str | int) for item in items):
        return None
    target: list[ast.expr] = [ast.Name(name, ast.Store())]
    return [part for item in items for part in (ast.Assign(target, ast.Constant(item)), *body)]


def named_check(check: Value, depth: int = 0) -> NamedCheck | None:
    """``check`` where it is a function of the program, bound or not, with one parameter left; None for others."""
    given: dict[str, Value] = {}
    positional: list[Value] = []
    if isinstance(check, Partial):
        if check.open_args or check.open_kwargs:
            return None
        positional, given, check = [*check.args], dict(check.kwargs), check.func
    if isinstance(check, Method):
        positional, check = [check.receiver, *positional], check.function
    if not isinstance(check, Function):
        return None
    names = positional_names(check.node)
    given |= dict(zip(names, positional, strict=False))
    left = [name for name in names if name not in given and name not in defaults(check.node)]
    if len(left) != 1 or len(positional) > len(names):
        return None
    return NamedCheck(check, given, left[0], depth)


def names_asked(check: Value) -> NamedCheck | None:
    """``check`` where it asks for the name of a module's class; None when it asks something else."""
    found = named_check(check)
    return found if found is not None and found.asks_for_name else None


def _expression(value: Value | None) -> ast.expr | None:
    """The literal that ``value`` is, as an expression; None for what is more than constants."""
    match value:
        case Const(constant) if isinstance(constant, str | int | float | None):
            return ast.Constant(constant)
        case Seq(items=items, open=False):
            parts = [_expression(item) for item in items]
            return ast.List([part for part in parts if part is not None], ast.Load()) if None not in parts else None
        case Dict(items, False):
            return ast.List([ast.Constant(key) for key in items], ast.Load())
        case Result(Call(func=Ref("re.compile"), args=[Const(str(pattern))])):
            return ast.Call(ast.Attribute(ast.Name("re"), "compile"), [ast.Constant(pattern)], [])
    return None


@lru_cache(maxsize=64)
def _bound_in(function: ast.AST) -> frozenset[str]:
    """The variables that a function binds itself."""
    bound = (node for node in all_nodes(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return frozenset(node.id for node in bound)
