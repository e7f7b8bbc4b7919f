"""Comprehensions: lists and dicts that a loop in an expression makes."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeGuard

from ..objects.containers import GAP, is_none, iterate, length_of, text_of
from ..objects.told_apart import FEW, are_told_apart, is_empty_tuple, keys_of
from ..scopes import Scope
from ..values import ABSENT, Const, Dict, Guard, Result, Seq, Value, join
from .bindings import assign
from .conditions import decided
from .picked import pick

if TYPE_CHECKING:
    from ..values import Place
    from ..walk import Walk


def comprehension(walk: Walk, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
    """What a comprehension makes: element by element where it shows them, else one that stands for all."""
    outside, place = walk.scope, walk.place
    first = walk.evaluate(node.generators[0].iter)
    listed = keys_of(first)
    if isinstance(node, ast.ListComp | ast.GeneratorExp) and is_empty_tuple(first):
        return Seq("list", [], False, node, place)
    if isinstance(node, ast.ListComp | ast.GeneratorExp) and are_told_apart(listed) and _is_plain(node):
        return _in_turn(walk, node, listed)
    if isinstance(node, ast.ListComp | ast.GeneratorExp) and (kept := _kept(walk, node, first)) is not None:
        return _in_turn(walk, node, kept)
    if isinstance(node, ast.DictComp) and len(node.generators) == 1 and _are_entries(listed):
        return _entries_in_turn(walk, node, listed)
    walk.scope = Scope(node, outside)
    count: int | None = 1
    for generator in node.generators:
        passed = first if generator is node.generators[0] else walk.evaluate(generator.iter)
        length = None if generator.ifs else length_of(passed)
        count = None if count is None or length is None else count * length
        element = iterate(passed, generator.iter)
        walk.place = walk.place._replace(loops=(*walk.place.loops, generator))
        assign(walk, generator.target, element, generator)
        for condition in generator.ifs:
            test = walk.evaluate(condition)
            if decided(walk, condition, test) is None:
                walk.place = walk.place._replace(guards=(*walk.place.guards, Guard(condition, test, True)))
        pick(walk, generator)
    if isinstance(node, ast.DictComp):
        made: Dict | Seq = _one_entry(walk, node, place)
    else:
        made = Seq("list", [walk.evaluate(node.elt)], True, node, place)
    made.count = count if _has_own_entries(node, passed) else None
    walk.scope, walk.place = outside, place
    return made


def _one_entry(walk: Walk, node: ast.DictComp, place: Place) -> Dict:
    """The dict that a comprehension makes, of whose entries one stands for all."""
    key = walk.evaluate(node.key)
    made = Dict({text_of(key) or GAP: walk.evaluate(node.value)}, True, node, place)
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
    if not isinstance(passed, Seq) or passed.open or passed.optional:
        return None
    if len(node.generators) > 1 or not node.generators[0].ifs:
        return None
    if not any(is_none(item) for item in passed.items) or len(passed.items) > FEW:
        return None
    outside, generator, kept = walk.scope, node.generators[0], list[Value]()
    for element in passed.items:
        walk.scope = Scope(node, outside)
        assign(walk, generator.target, element, generator)
        answers = [decided(walk, test, walk.evaluate(test)) for test in generator.ifs]
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
        made.append(walk.evaluate(node.elt))
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
        taken = [decided(walk, condition, walk.evaluate(condition)) for condition in generator.ifs]
        if False in taken:
            continue
        found, value = walk.evaluate(node.key), walk.evaluate(node.value)
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
