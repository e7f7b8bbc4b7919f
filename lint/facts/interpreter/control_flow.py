"""Branches, loops and blocks: what holds in them, and what the names mean behind them."""

from __future__ import annotations

import ast
from functools import lru_cache, reduce
from typing import TYPE_CHECKING

from ..exclusion import pattern_test
from ..identifiers import names_in
from ..nodes import all_nodes
from ..objects.classes import is_plain, method_of
from ..objects.containers import iterate, length_of, named_children
from ..objects.told_apart import keys_of
from ..scopes import bound_names
from ..values import (
    UNKNOWN,
    Attr,
    Call,
    Class,
    Computed,
    Const,
    Dict,
    Element,
    Function,
    Guard,
    Instance,
    Loop,
    Method,
    Partial,
    Ref,
    Result,
    Seq,
    Unknown,
    Value,
    join,
    join_under,
)
from ..values.grad_mode import GradState
from .bindings import assign
from .conditions import decided
from .fallback_imports import imported_for_use
from .switching import switches_only
from .untaken import leave_out

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..walk import Walk

#: What is raised to end a program, and not by a mistake.
_STOPS = ("KeyboardInterrupt", "SystemExit", "GeneratorExit")
#: How many steps are followed one by one.
_STEPS = 8
_LEAVING = (ast.Return, ast.Continue, ast.Break)
#: Methods that go through what a module holds itself.
_CHILDREN = ("named_children", "children")


def branch(walk: Walk, node: ast.If) -> bool:
    """`if`: both ways where the condition is open, each under what it says."""
    test = walk.evaluate(node.test)
    known = decided(walk, node.test, test)
    if known is not None:
        leave_out(walk, node, test, known)
        return walk.engine.execute(walk, node.body if known else node.orelse)
    if _is_main(node.test):
        return _main(walk, node)
    outside, names, grad = walk.place, dict(walk.scope.names), walk.program.grad
    before = grad.current
    walk.under(Guard(node.test, test, True))
    body_ends = walk.engine.execute(walk, node.body)
    after_body, walk.scope.names = walk.scope.names, names
    left_by_body, grad.current = grad.current, before
    walk.place = outside
    walk.under(Guard(node.test, test, False))
    else_ends = walk.engine.execute(walk, node.orelse)
    walk.place = outside
    if body_ends and not else_ends:
        # What follows runs only when the condition was false.
        walk.scope.leave(after_body)
        walk.under(Guard(node.test, test, False, _stops(node.body)))
    elif else_ends and not body_ends:
        walk.under(Guard(node.test, test, True, _stops(node.orelse)))
        walk.scope.leave(walk.scope.names)
        walk.scope.names = after_body
        grad.current = left_by_body
    else:
        branches = (Guard(node.test, test, True),), (Guard(node.test, test, False),)
        walk.scope.names = joined(after_body, walk.scope.names, branches)
        grad.current = left_by_body.met_by(grad.current)
    return body_ends and else_ends


def _stops(body: Sequence[ast.stmt]) -> bool:
    """Whether a block that is left for good ends the program, by an exception or a call of `exit`."""
    match body[-1] if body else None:
        case ast.Raise() | ast.Expr():
            return True
        case ast.If(body=inner, orelse=other):
            return _stops(inner) and _stops(other)
    return False


def _main(walk: Walk, node: ast.If) -> bool:
    """`if __name__ == "__main__"`: its body where the file is a script; what stands behind it is defined either way."""
    if walk.program.importing:
        return walk.engine.execute(walk, node.orelse)
    walk.program.grad.come_to_main()
    walk.engine.execute(walk, node.body)
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
    """The body once, then `else`: whether control comes to nothing behind the loop."""
    outside, names, grad = walk.place, dict(walk.scope.names), walk.program.grad
    before = grad.current
    walk.place = outside._replace(loops=(*outside.loops, node))
    walk.broken_off.append([])
    _open_flags(walk, node)
    body()
    walk.place = outside
    after = walk.scope.names
    left = walk.broken_off.pop()
    broken_off = reduce(joined, (found for _, found in left), after)
    walk.scope.names = {**joined(names, broken_off), **_grown_lists(names, after)}
    if _completes_an_iteration(walk, node):
        walk.scope.names.update((name, value) for name, value in after.items() if _is_made_anew(value))
    else:
        grad.current = before.met_by(grad.current)
    orelse = [] if isinstance(node, ast.comprehension) else node.orelse
    if not orelse:
        return False
    ends, found = walk.engine.execute(walk, orelse), [held for by, held in left if isinstance(by, ast.Break)]
    if ends and found:  # `else: raise`, when nothing broke the search off
        walk.scope.leave(walk.scope.names)
        walk.scope.names = reduce(joined, found)
    return ends and not found


def _open_flags(walk: Walk, loop: Loop) -> None:
    """Leave open what an iteration finds in the flags that another one sets: `if pending is not None`."""
    names = walk.scope.names
    flags = [name for name, value in names.items() if _is_flag(value)]
    for name in _asked_and_set(loop).intersection(flags) if flags else ():
        names[name] = join(names[name], UNKNOWN)


def _is_flag(value: Value) -> bool:
    return isinstance(value, Const) and (value.value is None or isinstance(value.value, bool))


@lru_cache(maxsize=256)
def _asked_and_set(loop: Loop) -> frozenset[str]:
    """The names that conditions in a loop read, and that the loop binds."""
    if isinstance(loop, ast.comprehension):
        return frozenset()
    tests = [part.test for part in all_nodes(loop) if isinstance(part, ast.If | ast.IfExp)]
    asked = frozenset().union(*(names_in(test) for test in tests))
    return asked.intersection(bound_names(loop)) if asked else asked


def _completes_an_iteration(walk: Walk, node: Loop) -> bool:
    """Whether control comes to the end of the loop's body at least once before it goes on behind the loop."""
    if not walk.program.iterations.get(node) or not isinstance(node, ast.For):
        return False
    return not any(isinstance(part, ast.Break | ast.Continue) for body in node.body for part in all_nodes(body))


def _is_made_anew(value: Value) -> bool:
    """Whether ``value`` is the same after more iterations: no number, text or list that grows with each."""
    return isinstance(value, Result) or (isinstance(value, Dict) and value.open)


def _grown_lists(before: dict[str, Value], after: dict[str, Value]) -> dict[str, Value]:
    """The lists that a loop makes longer by `layers = layers + [...]`, with what any iteration adds."""
    found: dict[str, Value] = {}
    for name, value in after.items():
        match before.get(name), value:
            case Seq(kind, first, place=place), Seq(_, items, node=ast.BinOp() as node) if items[: len(first)] == first:
                found[name] = Seq(kind, items, True, node, place)
    return found


def for_loop(walk: Walk, node: ast.For | ast.AsyncFor) -> bool:
    """`for`: the body once, for every element alike; once for each where they are steps that follow one another."""
    passed = walk.evaluate(node.iter)
    steps = _steps(keys_of(passed), node) or _stretches(passed, node)
    bound = steps or [iterate(passed, node.iter)]
    # What the body does in one iteration, each step does once.
    walk.program.iterations[node] = 1 if steps else length_of(passed)
    if steps:
        walk.program.in_turn.add(node)

    def body() -> bool:
        ends = False
        for element in bound:
            assign(walk, node.target, element, node)
            ends = walk.engine.execute(walk, node.body)
        return ends

    return _loop(walk, node, body)


def _steps(passed: Value, node: ast.For | ast.AsyncFor) -> list[Value]:
    """The elements of a loop that is followed step by step.

    Those through functions, `for stage in (wrap, shard)`, through names with their values, and through parts of a model
    of which it does nothing but switch something.
    """
    match passed:
        case Result(Call(name="builtins.enumerate", args=[counted, *_])):
            return [Seq("tuple", [Unknown(node.iter), step], False, node.iter) for step in _steps(counted, node)]
        case Result(call) if call.method in _CHILDREN:
            children = named_children(call.receiver)
            if not 1 < len(children) <= _STEPS or not switches_only(node):
                return []
            if call.method == "children":
                return [*children.values()]
            return [Seq("tuple", [Const(name), child], False, node.iter) for name, child in children.items()]
    if not isinstance(passed, Seq) or not 1 < len(passed.items) <= _STEPS:
        return []
    if any(isinstance(part, _LEAVING) for statement in node.body for part in all_nodes(statement)):
        return []
    if all(map(_may_be_module, passed.items)) and switches_only(node):
        return passed.items  # What else an open list holds is switched like these.
    are_functions = all(map(_has_function, passed.items)) and _hands_on(node)
    is_known = not passed.open and (are_functions or all(map(_is_named, passed.items)) or _runs_methods(passed, node))
    return passed.items if is_known else []


def _stretches(passed: Value, node: ast.For | ast.AsyncFor) -> list[Value]:
    """An element of each of the iterables that a loop goes through in turn: `chain(a, b)`, `list(a) + b`."""
    match passed:
        case Result(Call(name="itertools.chain", args=[_, _, *_]) as call) if not call.open_args:
            iterables = call.args
        case Computed(node=ast.BinOp(op=ast.Add()), operands=operands):
            iterables = [*operands]
        case _:
            return []
    if len(iterables) > _STEPS or not switches_only(node):
        return []
    return [iterate(iterable, node.iter) for iterable in iterables]


def _may_be_module(value: Value) -> bool:
    """Whether ``value`` is something that a call gave, or a part of it, and one thing in every run.

    So is a module or a class that is imported, whose methods a loop replaces. The name of one is as good, and so are
    both with a flag: `for part, flag in ((stem, False), (head, True))`.
    """
    match value:
        case Seq(items=parts, open=False):
            return bool(parts) and all(_may_be_module(part) or isinstance(part, Ref) for part in parts)
        case Ref(name):
            return "." in name and not _is_function(value)
    return isinstance(value, Instance | Result | Attr | Element | Const)


def _is_function(value: Value) -> bool:
    match value:
        case Function() | Method():
            return True
        case Instance(cls, call) if call is not None and is_plain(cls):  # an object that is called
            return method_of(cls, "__call__") is not None
        case Class() if is_plain(value):  # of which each step makes one
            return method_of(value, "__call__") is not None
        case Partial(func=function):
            return _is_function(function)
        case Ref(name):  # no class: an object of it is what a loop makes
            return "." in name and not name.rpartition(".")[2][:1].isupper()
    return False


def _has_function(value: Value) -> bool:
    """Whether it is a function, or one with what it is given: `(wrap, {"dtype": dtype})`."""
    match value:
        case Seq(_, [function, *_], False):
            return _is_function(function)
    return _is_function(value)


def _runs_methods(passed: Seq, node: ast.For | ast.AsyncFor) -> bool:
    """Whether the loop runs the methods of these names: `for name in ("wrap", "shard"): getattr(self, name)()`."""
    if not all(isinstance(item, Const) and isinstance(item.value, str) for item in passed.items):
        return False
    called = [part.func for body in node.body for part in all_nodes(body) if isinstance(part, ast.Call)]
    return any(_reads_by(function, node.target) for function in called)


def _reads_by(read: ast.expr, target: ast.expr) -> bool:
    match read, target:
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Name(id=name), *_]), ast.Name(id=step):
            return name == step
    return False


def _hands_on(node: ast.For | ast.AsyncFor) -> bool:
    """Whether the functions get what there is before the loop, or one another's results: `model = stage(model)`.

    What a loop makes besides is another object for each of them.
    """
    parts = [part for statement in node.body for part in all_nodes(statement)]
    dropped = {part.value for part in parts if isinstance(part, ast.Expr)}
    match node.target:
        case ast.Name(id=step):
            names = [step]
        case ast.Tuple(elts=targets):  # `enumerate(stages)`, or functions with what they are given
            names = [name for target in targets for name in names_in(target)]
        case _:
            return False
    others = (part for part in parts if isinstance(part, ast.Call) and part not in dropped)
    return all(isinstance(call.func, ast.Name) and call.func.id in names for call in others)


def _is_named(value: Value) -> bool:
    """Whether ``value`` is a name, or settings: a tuple that begins with one, a dict, an object of a plain class."""
    match value:
        case Seq(_, [Const(str()), _, *_], False):
            return True
        case Dict(items, False):
            return bool(items)
        case Instance(cls, call) if call is not None and is_plain(cls):
            return any(
                isinstance(it, Const) and isinstance(it.value, str) for it in (*call.args, *call.kwargs.values())
            )
        case Const(str(text)):
            return value.node is None or "=" in text  # the key of a dict, or a setting: `NAME=value`
    return False


def while_loop(walk: Walk, node: ast.While) -> bool:
    """`while`: the body once."""
    walk.evaluate(node.test)
    return _loop(walk, node, lambda: walk.engine.execute(walk, node.body))


def try_block(walk: Walk, node: ast.Try) -> bool:
    """`try`: each handler starts from the names before the statement."""
    outside, names, grad = walk.place, dict(walk.scope.names), walk.program.grad
    before = grad.current
    if any(map(_hides, node.handlers)) or any(isinstance(part, _LEAVING) for part in node.finalbody):
        walk.place = outside._replace(tries=(*outside.tries, node))
    ends = walk.engine.execute(walk, node.body) or walk.engine.execute(walk, node.orelse)
    walk.place = outside
    after = None if ends else walk.scope.names
    if ends:
        walk.scope.leave(walk.scope.names)
    left = grad.current
    raised_in = before.met_by(left)
    going_on: list[Guard] = []
    for handler in node.handlers:
        walk.scope.names = dict(names)
        grad.current = raised_in
        if handler.name:
            walk.scope.bind(handler.name, Unknown(handler))
        walk.place = outside
        caught = Guard(handler, Unknown(node), True)
        walk.under(caught)
        if not walk.engine.execute(walk, handler.body):
            going_on.append(caught)
            left = grad.current if after is None else left.met_by(grad.current)
            walk.scope.names |= imported_for_use(after, walk.scope.names)
            after = walk.scope.names if after is None else joined(after, walk.scope.names, ((), (caught,)))
        else:
            walk.scope.leave(walk.scope.names)
    walk.place = outside
    grad.current = left
    walk.scope.names = names if after is None else after
    left_for_good = walk.engine.execute(walk, node.finalbody) or after is None
    if ends and len(going_on) == 1 and _returns(node):
        # `try: return ...`: what follows runs only after the error.
        walk.under(going_on[0])
    return left_for_good


def _returns(node: ast.Try) -> bool:
    """Whether a block without an error ends in `return`, `continue` or `break`."""
    return isinstance([*node.body, *node.orelse][-1], _LEAVING)


def _hides(handler: ast.ExceptHandler) -> bool:
    """Whether the program may go on after an error that ``handler`` gets."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    if all(isinstance(kind, ast.Name) and kind.id in _STOPS for kind in kinds):
        return False
    return not isinstance(handler.body[-1], ast.Raise) or any(isinstance(it, _LEAVING) for it in all_nodes(handler))


def match_block(walk: Walk, node: ast.Match) -> bool:
    """`match`: every case that the subject may fit, each under what its pattern says."""
    subject = walk.evaluate(node.subject)
    around = walk.place
    names = walk.scope.names
    #: The names after each way through the statement.
    ways: list[dict[str, Value]] = []
    grad = walk.program.grad
    before, states = grad.current, list[GradState]()
    for case in node.cases:
        walk.scope.names = dict(names)
        grad.current = before
        test = pattern_test(node.subject, case.pattern)
        fits = _fits(walk, case, test)
        if fits is False:
            continue
        around_case = walk.place
        _capture(walk, case.pattern)
        if not fits:
            walk.under(Guard(test, subject, True))
        if not walk.engine.execute(walk, case.body):
            ways.append(walk.scope.names)
            states.append(grad.current)
        else:
            walk.scope.leave(walk.scope.names)
        walk.place = around_case
        if fits:
            break
        if test is not case.pattern and case.guard is None:
            # The cases that follow are tried only when this one does not fit.
            walk.under(Guard(test, subject, False))
    else:
        ways.append(names)
        states.append(before)
    walk.place = around
    grad.current = reduce(GradState.met_by, states) if states else before
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
