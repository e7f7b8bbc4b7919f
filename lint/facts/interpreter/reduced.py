"""`functools.reduce`: a function of the program called with what it gave before and the next element."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple, cast

from ..objects.containers import is_module_list, iterate
from ..objects.told_apart import FEW, keys_of
from ..origin import stands_for
from ..scopes import Scope
from ..values import Function, Method, Partial, Seq, Value, join

if TYPE_CHECKING:
    from ..values import Call
    from ..walk import Walk

#: What a reduction runs is kept on its call: nodes are told apart by identity.
_FIELD = "_ckpt_lint_reduction"
_STEP, _HELD, _NEXT = "<step>", "<held>", "<next>"


class _Reduction(NamedTuple):
    """`for next in ...: held = step(held, next)`."""

    step: ast.Call
    loop: ast.comprehension


def reduced(walk: Walk, call: Call) -> Value | None:
    """What `reduce(lambda model, stage: stage(model), (wrap, shard), model)` gives: each step follows the one before.

    Elements that are not shown one by one are as those of a loop: the step is followed once. None for other calls.
    """
    if call.open_args or call.kwargs or len(call.args) not in (2, 3) or not _is_own(call.args[0]):
        return None
    function, given, *first = call.args
    passed = keys_of(given)
    if isinstance(passed, Seq) and not passed.open and not passed.optional and len(passed.items) <= FEW:
        steps = [*first, *passed.items]
        if not steps:
            return None
        walk.program.in_turn.add(_reduction(call.node).loop)
        return _each(walk, call, function, steps)
    if first and (isinstance(passed, Seq) or is_module_list(passed)):
        return join(first[0], _each(walk, call, function, [first[0], iterate(passed, call.node)]))
    return None


def _is_own(function: Value) -> bool:
    match function:
        case Function() | Method():
            return True
        case Partial(func=inner):
            return _is_own(inner)
    return False


def _each(walk: Walk, call: Call, function: Value, steps: list[Value]) -> Value:
    outside, place, reduction = walk.scope, walk.place, _reduction(call.node)
    walk.scope = Scope(call.node, outside)
    walk.place = place._replace(loops=(*place.loops, reduction.loop))
    walk.scope.bind(_STEP, function)
    held, *others = steps
    for element in others:
        walk.scope.bind(_HELD, held)
        walk.scope.bind(_NEXT, element)
        held = walk.evaluate(reduction.step)
    walk.scope, walk.place = outside, place
    return held


def _reduction(node: ast.Call) -> _Reduction:
    found = getattr(node, _FIELD, None)
    if found is None:
        names = [ast.Name(name, ast.Load()) for name in (_STEP, _HELD, _NEXT)]
        target = ast.Name(_NEXT, ast.Store())
        step = ast.Call(names[0], [*names[1:]], [])
        for part in (step, target, *names):
            stands_for(part, node)
        found = _Reduction(step, ast.comprehension(target, node, [], 0))
        setattr(node, _FIELD, found)
    return cast("_Reduction", found)
