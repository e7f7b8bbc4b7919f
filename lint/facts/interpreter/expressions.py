"""Expressions to values."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, TypeGuard

from ..objects.attributes import get_attribute
from ..objects.containers import (
    GAP,
    each,
    elements,
    is_none,
    iterate,
    length_of,
    repeated_length,
    text_of,
    together,
    total_length,
)
from ..objects.dataclass_fields import attributes_as_dict
from ..objects.dicts import merge_into
from ..objects.enums import key_text
from ..objects.numbers import ARITHMETIC, combined
from ..objects.told_apart import FEW, are_told_apart, keys_of
from ..scopes import Scope
from ..values import (
    ABSENT,
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
from .conditions import decided
from .context_managers import hand_over, hand_over_each
from .mapped import as_comprehension
from .open_keys import item_of
from .picked import pick
from .property_reads import read_property
from .untaken import leave_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..values import Place
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
    return evaluate_call(walk, node) if each is None else _comprehension(walk, each)


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
    return Test((*values,), node)


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


def _comprehension(walk: Walk, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
    outside, place = walk.scope, walk.place
    first = evaluate(walk, node.generators[0].iter)
    if isinstance(node, ast.ListComp | ast.GeneratorExp) and are_told_apart(first) and _is_plain(node):
        return _in_turn(walk, node, first)
    if isinstance(node, ast.ListComp | ast.GeneratorExp) and (kept := _kept(walk, node, first)) is not None:
        return _in_turn(walk, node, kept)
    if isinstance(node, ast.DictComp) and len(node.generators) == 1 and _are_entries(keys := keys_of(first)):
        return _entries_in_turn(walk, node, keys)
    walk.scope = Scope(node, outside)
    count: int | None = 1
    for generator in node.generators:
        passed = first if generator is node.generators[0] else evaluate(walk, generator.iter)
        length = None if generator.ifs else length_of(passed)
        count = None if count is None or length is None else count * length
        element = iterate(passed, generator.iter)
        walk.place = walk.place._replace(loops=(*walk.place.loops, generator))
        assign(walk, generator.target, element, generator)
        for condition in generator.ifs:
            test = evaluate(walk, condition)
            if decided(walk, condition, test) is None:
                walk.place = walk.place._replace(guards=(*walk.place.guards, Guard(condition, test, True)))
        pick(walk, generator)
    if isinstance(node, ast.DictComp):
        made: Dict | Seq = _one_entry(walk, node, place)
    else:
        made = Seq("list", [evaluate(walk, node.elt)], True, node, place)
    made.count = count if _has_own_entries(node, passed) else None
    walk.scope, walk.place = outside, place
    return made


def _one_entry(walk: Walk, node: ast.DictComp, place: Place) -> Dict:
    """The dict that a comprehension makes, of whose entries one stands for all."""
    key = evaluate(walk, node.key)
    made = Dict({text_of(key) or GAP: evaluate(walk, node.value)}, True, node, place)
    # A condition on the key itself may be about what it is: `{op: save for op in OPS if isinstance(op, OpOverload)}`.
    if not isinstance(node.key, ast.Name) or not any(generator.ifs for generator in node.generators):
        made.keys += [key] if text_of(key) is None else []
    return made


def _is_plain(node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> bool:
    """Whether it has one loop, and no condition."""
    return len(node.generators) == 1 and not node.generators[0].ifs


def _kept(walk: Walk, node: ast.ListComp | ast.GeneratorExp, passed: Value) -> Seq | None:
    """The elements that a comprehension keeps of a list with gaps: `[part for part in parts if part is not None]`.

    None where a condition is open for one of them.
    """
    is_list = isinstance(passed, Seq) and not passed.open and not passed.optional
    if not is_list or not isinstance(passed, Seq) or len(node.generators) > 1 or not node.generators[0].ifs:
        return None
    if not any(is_none(item) for item in passed.items) or len(passed.items) > FEW:
        return None
    outside, generator, kept = walk.scope, node.generators[0], list[Value]()
    for element in passed.items:
        walk.scope = Scope(node, outside)
        assign(walk, generator.target, element, generator)
        answers = [decided(walk, test, evaluate(walk, test)) for test in generator.ifs]
        walk.scope = outside
        if None in answers:
            return None
        kept += [element] if all(answers) else []
    return Seq(passed.kind, kept, False, passed.node, passed.place)


def _in_turn(walk: Walk, node: ast.ListComp | ast.GeneratorExp, passed: Seq) -> Seq:
    """A comprehension over the elements of ``passed``, one by one."""
    outside, place, generator = walk.scope, walk.place, node.generators[0]
    walk.scope = Scope(node, outside)
    walk.place = place._replace(loops=(*place.loops, generator))
    walk.program.in_turn.add(generator)
    made: list[Value] = []
    for element in passed.items:
        assign(walk, generator.target, element, generator)
        made.append(evaluate(walk, node.elt))
    walk.scope, walk.place = outside, place
    return Seq("list", made, False, node, place)


def _are_entries(passed: Value) -> TypeGuard[Seq]:
    """Whether ``passed`` is what `settings.items()` gives for a dict that shows its keys, or a few keys."""
    pairs = passed.items if isinstance(passed, Seq) else []
    if isinstance(passed, Seq) and not passed.open and pairs and all(isinstance(text_of(key), str) for key in pairs):
        return all(isinstance(key, Const) for key in pairs)
    return bool(pairs) and all(
        isinstance(pair, Seq) and len(pair.items) == 2 and isinstance(pair.items[0], Const) for pair in pairs
    )


def _entries_in_turn(walk: Walk, node: ast.DictComp, passed: Seq) -> Dict:
    """A comprehension over the entries of a dict, one by one: `{k: v for k, v in held.items() if v is not None}`."""
    outside, place, generator = walk.scope, walk.place, node.generators[0]
    walk.scope = Scope(node, outside)
    walk.place = place._replace(loops=(*place.loops, generator))
    walk.program.in_turn.add(generator)
    made = Dict({}, passed.open, node, place)
    for element in passed.items:
        assign(walk, generator.target, element, generator)
        taken = [decided(walk, condition, evaluate(walk, condition)) for condition in generator.ifs]
        if False in taken:
            continue
        found, value = evaluate(walk, node.key), evaluate(walk, node.value)
        key = text_of(found)
        made.open |= key is None
        made.keys += [found] if key is None else []
        made.items[key or GAP] = join(value, ABSENT) if None in taken else value
    walk.scope, walk.place = outside, place
    return made


def _has_own_entries(node: ast.expr, passed: Value) -> bool:
    """Whether each iteration of a comprehension adds an entry: in a dict, one whose key has a number of a range."""
    if not isinstance(node, ast.DictComp):
        return not isinstance(node, ast.SetComp)
    if len(node.generators) > 1:
        return False
    counts = isinstance(passed, Result) and passed.call.name == "builtins.range"
    shown = node.key.values if isinstance(node.key, ast.JoinedStr) else [node.key]
    texts = [ast.unparse(part.value if isinstance(part, ast.FormattedValue) else part) for part in shown]
    return counts and ast.unparse(node.generators[0].target) in texts


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
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.DictComp: _comprehension,
    ast.Await: _inner,
    ast.Starred: _inner,
    ast.Yield: hand_over,
    ast.YieldFrom: hand_over_each,
}
