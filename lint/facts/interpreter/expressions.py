"""Expressions to values."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from ..objects.attributes import get_attribute
from ..objects.containers import (
    GAP,
    each,
    elements,
    is_none,
    iterate,
    repeated_length,
    text_of,
    together,
    total_length,
)
from ..objects.dataclass_fields import attributes_as_dict
from ..objects.dicts import merge_into
from ..objects.enums import equals_text, is_one_member, key_text
from ..objects.numbers import ARITHMETIC, combined
from ..objects.told_apart import is_empty_tuple
from ..values import (
    Choice,
    Computed,
    Const,
    Dict,
    Function,
    Guard,
    Result,
    Seq,
    Template,
    Test,
    Unknown,
    Value,
    join,
    join_under,
    may_be_none,
    options,
    truth,
)
from .bindings import assign
from .calling import evaluate_call
from .comprehensions import comprehension
from .conditions import decided
from .context_managers import hand_over, hand_over_each
from .mapped import as_comprehension
from .open_keys import item_of
from .property_reads import read_property
from .untaken import leave_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..walk import Walk

#: Where `%` puts a value in.
_PLACE = re.compile(r"%[-+ #0-9.]*[a-z]|%\(\w+\)[a-z]")


def evaluate(walk: Walk, node: ast.AST | None) -> Value:
    """What ``node`` evaluates to here; every call in it is recorded on the way."""
    handler = _HANDLERS.get(type(node))
    return handler(walk, node) if handler is not None else _children(walk, node)


def _name(walk: Walk, node: ast.Name) -> Value:
    return walk.scope.look_up(node.id)


def _constant(walk: Walk, node: ast.Constant) -> Value:
    return Const(node.value, node)


def _attribute(walk: Walk, node: ast.Attribute) -> Value:
    base = evaluate(walk, node.value)
    found = get_attribute(base, node.attr, node)
    return (read_property(walk, base, node) or found) if type(found) is Unknown else found


def _subscript(walk: Walk, node: ast.Subscript) -> Value:
    return item_of(walk, evaluate(walk, node.value), evaluate(walk, node.slice), node)


def _call(walk: Walk, node: ast.Call) -> Value:
    each = as_comprehension(walk, node)
    return evaluate_call(walk, node) if each is None else comprehension(walk, each)


def _sequence(walk: Walk, node: ast.List | ast.Tuple | ast.Set) -> Value:
    items: list[Value] = []
    spread: list[Value] = []
    is_open = False
    for element in node.elts:
        value = evaluate(walk, element.value if isinstance(element, ast.Starred) else element)
        if not isinstance(element, ast.Starred):
            items.append(value)
        else:
            items += elements(value) or _one_for_all(value, element)
            is_open = is_open or not isinstance(value, Seq) or value.open
            spread.append(value)
    made = Seq(type(node).__name__.lower(), items, is_open, node, walk.place)
    more = total_length(spread)
    made.count = None if more is None or isinstance(node, ast.Set) else len(node.elts) - len(spread) + more
    return made


def _one_for_all(held: Value, node: ast.Starred) -> list[Value]:
    """An element of what is not listed one by one; none where nothing is known of it."""
    element = iterate(held, node)
    return [] if isinstance(element, Unknown) else [element]


def _dict(walk: Walk, node: ast.Dict) -> Value:
    made = Dict({}, False, node, walk.place)
    for key, expression in zip(node.keys, node.values, strict=True):
        value = evaluate(walk, expression)
        name = evaluate(walk, key) if key is not None else None
        if key is None or name is None:
            merge_into(made, attributes_as_dict(value, node, walk.place))
        elif (text := key_text(name)) is not None:
            made.items[text] = value
        elif isinstance(name, Const):
            made.items[repr(name.value)] = value
        else:
            pattern = text_of(name) or GAP
            made.items[pattern] = join(made.items[pattern], value) if pattern in made.items else value
            made.keys += [name] if text_of(name) is None else []
            made.open = True
    return made


def _lambda(walk: Walk, node: ast.Lambda) -> Value:
    function = Function(node, walk.scope, walk.place)
    walk.program.define(function)
    return function


def _conditional(walk: Walk, node: ast.IfExp) -> Value:
    test = evaluate(walk, node.test)
    known = decided(walk, node.test, test)
    if known is not None:
        leave_out(walk, node, test, known)
    outside = walk.place
    chosen: list[tuple[Value, tuple[Guard, ...]]] = []
    for taken, branch in ((True, node.body), (False, node.orelse)):
        if known is None or known is taken:
            guards = (Guard(node.test, test, taken),) if known is None else ()
            walk.place = outside._replace(guards=(*outside.guards, *guards))
            chosen.append((evaluate(walk, branch), guards))
    walk.place = outside
    return join_under(*chosen)


def _boolean(walk: Walk, node: ast.BoolOp) -> Value:
    stops = isinstance(node.op, ast.Or)
    outside = walk.place
    values: list[tuple[Value, tuple[Guard, ...]]] = []
    guards: tuple[Guard, ...] = ()
    for expression in node.values:
        # `and` and `or` come to a part only when those before it did not decide.
        walk.place = outside._replace(guards=(*outside.guards, *guards))
        value = evaluate(walk, expression)
        known = truth(value)
        if known is None or known is stops or expression is node.values[-1]:
            values.append((value, guards))
        if known is stops:
            break
        if known is None:
            guards = (*guards, Guard(expression, value, not stops))
    walk.place = outside
    found = join_under(*values) if values else Const(not stops, node)
    is_test = len(values) > 1 and isinstance(found, Unknown) and not isinstance(found, Computed)
    return Test(tuple(value for value, _ in values), node) if is_test else found


def _unary(walk: Walk, node: ast.UnaryOp) -> Value:
    value = evaluate(walk, node.operand)
    if isinstance(node.op, ast.Not):
        known = truth(value)
        return Test((value,), node) if known is None else Const(not known, node)
    if isinstance(node.op, ast.USub) and isinstance(value, Const) and type(value.value) in (int, float):
        return Const(-value.value, node)  # type: ignore[operator]
    return Computed((value,), node)


def _binary(walk: Walk, node: ast.BinOp) -> Value:
    return _combined(walk, evaluate(walk, node.left), evaluate(walk, node.right), node)


def _combined(walk: Walk, left: Value, right: Value, node: ast.BinOp) -> Value:
    match left, right, node.op:
        case (Choice(options=ways), _, ast.Add()) if any(isinstance(way, Seq) for way in ways):
            return each(left, lambda way: _combined(walk, way, right, node))
        case (_, Choice(options=ways), ast.Add()) if any(isinstance(way, Seq) for way in ways):
            return each(right, lambda way: _combined(walk, left, way, node))
        case Dict(), Dict(), ast.BitOr():
            made = Dict({}, False, node, walk.place)
            merge_into(made, left)
            merge_into(made, right)
            return made
        case (Seq(kind, items) as listed, times, ast.Mult()) | (times, Seq(kind, items) as listed, ast.Mult()):
            repeated = Seq(kind, [*items], True, node, walk.place)
            repeated.count = repeated_length(listed, times)
            return repeated
        case Seq(), Seq(), ast.Add():
            items, is_whole = together(left.items, right.items)
            joined = Seq(left.kind, items, left.open or right.open or not is_whole, node, walk.place)
            joined.count = total_length((left, right))
            return joined
        case Const(str(a)), Const(str(b)), ast.Add() if len(a) + len(b) < 10_000:
            return Const(a + b, node)
        case Const(str(pattern)), _, ast.Mod():
            return Template(_PLACE.sub(GAP, pattern), node)
        case (Const(str() | int()) | Template() | Unknown() | Result(), Const(str()) | Template(), ast.Add()) | (
            Const(str()) | Template(),
            _,
            ast.Add(),
        ):
            return Template(f"{text_of(left) or GAP}{text_of(right) or GAP}", node)
        case Const(int() | float() as a), Const(int() | float() as b), op if type(op) in ARITHMETIC:
            number = combined(type(op), a, b)
            return Unknown(node) if number is None else Const(number, node)
    return Computed((left, right), node)


def _joined_string(walk: Walk, node: ast.JoinedStr) -> Value:
    """An f-string: a constant, or what is known of it."""
    parts = [_part(walk, part) for part in node.values]
    if all(isinstance(part, Const) for part in parts):
        return Const("".join(str(part.value) for part in parts if isinstance(part, Const)), node)
    return Template(
        "".join(str(part.value) if isinstance(part, Const) else text_of(part) or GAP for part in parts), node
    )


def _part(walk: Walk, node: ast.expr) -> Value:
    """One part of an f-string; a replacement field with nothing but a value shows it as it is."""
    is_plain = isinstance(node, ast.FormattedValue) and node.conversion == -1 and node.format_spec is None
    return evaluate(walk, node.value if isinstance(node, ast.FormattedValue) and is_plain else node)


def _compare(walk: Walk, node: ast.Compare) -> Value:
    values = [evaluate(walk, part) for part in (node.left, *node.comparators)]
    if len(values) == 2 and is_none(values[1]) and isinstance(node.ops[0], ast.Is | ast.IsNot):
        answer = may_be_none(values[0])
        return Test((*values,), node) if answer is None else Const(answer is isinstance(node.ops[0], ast.Is), node)
    match values, node.ops[0]:
        case [_, right], ast.In() | ast.NotIn() as op if is_empty_tuple(right):
            return Const(isinstance(op, ast.NotIn), node)
        case [Const(left), Const(right)], ast.Eq() | ast.Is():
            return Const(left == right, node)
        case [Const(left), Const(right)], ast.NotEq() | ast.IsNot():
            return Const(left != right, node)
        case [Const(left), Seq(_, items, False)], ast.In() | ast.NotIn() as op:
            listed = [item.value for item in items if isinstance(item, Const)]
            if len(listed) == len(items):
                return Const((left in listed) == isinstance(op, ast.In), node)
        case [Choice() as left, Const(str(right))], ast.Eq() | ast.NotEq() as op if _is_none_of(left, right):
            if _is_passed_over(walk, node.left):
                return Const(isinstance(op, ast.NotEq), node)
        case [left, right], ast.Eq() | ast.Is() | ast.NotEq() | ast.IsNot() as op:
            alike = _is_same_member(left, right)
            if alike is not None:
                return Const(alike is isinstance(op, ast.Eq | ast.Is), node)
        case [left, Seq(_, items, False)], ast.In() | ast.NotIn() as op:
            answers = [_is_same_member(left, item) for item in items]
            if True in answers or None not in answers:
                return Const((True in answers) is isinstance(op, ast.In), node)
    return Test((*values,), node)


def _is_same_member(left: Value, right: Value) -> bool | None:
    """Whether both are one member of an enumeration, or a member that is a text and this text; None where open."""
    match left, right:
        case (member, Const(str(text))) | (Const(str(text)), member):
            return equals_text(member, text)
    return is_one_member(left, right)


def _is_none_of(value: Choice, text: str) -> bool:
    """Whether ``value`` is one of several known texts, and ``text`` is not among them."""
    known = [option.value for option in options(value) if isinstance(option, Const)]
    return len(known) == len(list(options(value))) and all(isinstance(k, str) and k != text for k in known)


def _is_passed_over(walk: Walk, node: ast.expr) -> bool:
    """Whether ``node`` is what a loop around it takes from a container of known length."""
    counted = (loop for loop in walk.place.loops if isinstance(loop, ast.For) and walk.program.iterations.get(loop))
    targets = [part for loop in counted for part in ast.walk(loop.target)]
    return isinstance(node, ast.Name) and any(isinstance(part, ast.Name) and part.id == node.id for part in targets)


def _slice(walk: Walk, node: ast.Slice) -> Value:
    """`1:n`: its bounds and its step, None for those that are not there."""
    parts = (node.lower, node.upper, node.step)
    return Seq("slice", [Const(None) if part is None else evaluate(walk, part) for part in parts], False, node)


def _named(walk: Walk, node: ast.NamedExpr) -> Value:
    value = evaluate(walk, node.value)
    assign(walk, node.target, value, node)
    return value


def _inner(walk: Walk, node: ast.Await | ast.Starred) -> Value:
    return evaluate(walk, node.value)


def _children(walk: Walk, node: ast.AST | None) -> Value:
    if node is not None:
        for child in ast.iter_child_nodes(node):
            evaluate(walk, child)
    return Unknown(node)


_HANDLERS: dict[type, Callable[[Walk, Any], Value]] = {
    ast.Name: _name,
    ast.Constant: _constant,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.Call: _call,
    ast.List: _sequence,
    ast.Tuple: _sequence,
    ast.Set: _sequence,
    ast.Dict: _dict,
    ast.Lambda: _lambda,
    ast.JoinedStr: _joined_string,
    ast.IfExp: _conditional,
    ast.BoolOp: _boolean,
    ast.UnaryOp: _unary,
    ast.BinOp: _binary,
    ast.Compare: _compare,
    ast.NamedExpr: _named,
    ast.ListComp: comprehension,
    ast.SetComp: comprehension,
    ast.GeneratorExp: comprehension,
    ast.DictComp: comprehension,
    ast.Await: _inner,
    ast.Starred: _inner,
    ast.Yield: hand_over,
    ast.YieldFrom: hand_over_each,
}
