"""Conditions around what a finding rests on: which of them are open, and what that makes of the finding.

A report holds at its node whatever the conditions there are: they say when checkpointing is used at all. What else it
rests on may be under more of them (`if norm == "BN"`). A report is a finding when every way to come to its node meets
what it rests on; otherwise it is a note that names the condition.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from itertools import combinations, product
from typing import TYPE_CHECKING, TypeAlias

from ...facts.exclusion import conjuncts, parts_that_hold, ways_to_hold
from ...facts.nodes import is_inside, source_text
from ...facts.objects.attributes import made_at
from ...facts.objects.containers import is_none
from ...facts.origin import origin
from ...facts.values import UNKNOWN, Attr, Call, Instance, Method, Param, Ref, Result, Unknown, options
from ..events import Checkpoint
from ..regions.free_variables import attributes_bound_by, names_bound_by
from .constructed import comes_out_as
from .given_entries import given_entries
from .guards import own_guards, tests_training

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...facts.values import Guard, Loop, Place
    from ...facts.walk import Write
    from ..report import Remark, Report
    from ..run import Run

#: What surely holds: conditions as text, and whether they are met.
_Known: TypeAlias = frozenset[tuple[str, bool]]
#: The same, and conditions at one place.
_Held: TypeAlias = frozenset[tuple[str, bool] | tuple[ast.AST, bool]]
_Guards: TypeAlias = tuple["Guard", ...]
_GRADIENTS = ast.parse("torch.is_grad_enabled()", mode="eval").body
#: More conditions than this are not compared to find out whether they cover every case.
_MAX_CASES = 6
_LAUNCHED = re.compile(
    r"distributed|world_?size|local_rank|is_initialized|device_count|num_gpus|n_gpu|multi_?gpu|cuda|\bddp\b|\bfsdp\b",
    re.IGNORECASE,
)


def open_conditions(run: Run, report: Report) -> _Guards:
    """The conditions that must hold besides those around the node of ``report``; empty when there are none."""
    around = [place.guards for place in run.places(report.node)]
    rests = [remark for remark in report.notes if remark.decides]
    if not around or not rests:
        return ()
    if not run.enables(report.node):
        # A finding about something else speaks of what happens while checkpointing is on.
        enabling = (remark.node for remark in report.notes if run.enables(remark.node))
        around += [place.guards for node in enabling for place in run.places(node)]
    checkpoints = [it for it in run.checkpoints_at(report.node) if isinstance(it, Checkpoint)]
    inside = run.running_again(report.node)
    made = _made_under(checkpoints) | _recording(checkpoints) | given_entries(checkpoints)
    found = [_open(run, rests, inside, _known(guards) | made) for guards in around]
    return min(found, key=len)


def _made_under(checkpoints: list[Checkpoint]) -> frozenset[tuple[ast.AST, bool]]:
    """The conditions under which what ``checkpoints``, all of one call, run was made: where it runs, they held.

    Not as text: `self.distil` asks for another attribute in another class.
    """
    entered = [event.function for event in checkpoints]
    # None cannot be called: where the rest is one object, it is that.
    meant = {id(it): it for value in entered for it in options(value) if not is_none(it)}
    value = next(iter(meant.values())) if len(meant) == 1 else None
    value = value.receiver if isinstance(value, Method) else value
    guards = made_at(value).guards if isinstance(value, Instance | Result) else ()
    return frozenset((guard.test, guard.taken) for guard in guards)


def _recording(checkpoints: list[Checkpoint]) -> _Known:
    """That gradients are on, where non-reentrant ``checkpoints`` run in training: both times."""
    is_recording = bool(checkpoints) and all(event.reentrant is False for event in checkpoints)
    return frozenset(conjuncts(_GRADIENTS, True)) if is_recording else frozenset()


def _open(run: Run, rests: Iterable[Remark], inside: frozenset[ast.AST], known: _Held) -> _Guards:
    """The conditions of ``rests`` that are not among those ``known`` to hold."""
    found: dict[tuple[str, bool], Guard] = {}
    for remark in rests:
        for guard in _left(run, remark, inside, known):
            found.setdefault((ast.dump(guard.test), guard.taken), guard)
    return tuple(found.values())


def _left(run: Run, remark: Remark, inside: frozenset[ast.AST], known: _Held) -> _Guards:
    facts = _meant(remark, run.met(remark.node))
    left = [
        tuple(guard for guard in guards if not _holds(run, guard, known))
        for guards in _alternatives(run, remark, facts, inside)
    ]
    # An expression may call one of several: then it takes part only when that one is meant.
    called = {fact.func.name if isinstance(fact, Call) and isinstance(fact.func, Ref) else "" for fact in facts}
    return () if not left or (len(called) == 1 and cover_every_case(left)) else min(left, key=len)


def _meant(remark: Remark, facts: list[Call | Write]) -> list[Call | Write]:
    """Those of ``facts`` in which what the remark speaks of is called."""
    if not remark.called:
        # What a caller gives is not what the remark speaks of: that is known.
        known = [fact for fact in facts if not (isinstance(fact, Call) and isinstance(fact.func, Param | Unknown))]
        return known or facts
    return [fact for fact in facts if isinstance(fact, Call) and fact.name == remark.called]


def _alternatives(run: Run, remark: Remark, facts: Iterable[Call | Write], inside: frozenset[ast.AST]) -> list[_Guards]:
    """The conditions around each time that the node of ``remark`` was met, with those under which it takes part.

    Who else calls the functions ``inside`` the region does not matter: the checkpoint does.
    """
    more = remark.conditions
    met = []
    for place in (fact.place for fact in facts):
        again = place.function is not None and place.function.node in inside
        here = tuple(guard for guard in more if any(_holds_test(loop, guard) for loop in place.loops))
        around = (*(own_guards(place) if again else place.guards), *here)
        met.append((*_decided_once(run, place, around), *(guard for guard in more if guard not in here)))
    possible = [guards for guards in met if not any(one.contradicts(other) for one, other in combinations(guards, 2))]
    return possible or ([more] if more else [])


def _decided_once(run: Run, place: Place, guards: Iterable[Guard]) -> Iterator[Guard]:
    """What ``guards``, conditions of ``place``, ask that comes out alike in every iteration of the loops around it."""
    loops = [*place.loops, *_loops_of_callers(run, place)]
    for guard in guards:
        around = [loop for loop in loops if loop in place.loops or _holds_test(loop, guard)]
        parts = list(parts_that_hold(guard.test, guard.taken))
        left = [(part, holds) for part, holds in parts if not any(_turns_with(part, loop) for loop in around)]
        if len(left) == len(parts):
            yield guard
        else:
            yield from (guard._replace(test=part, value=UNKNOWN, taken=holds) for part, holds in left)


def _loops_of_callers(run: Run, place: Place) -> Iterator[Loop]:
    """The loops around the calls that led to ``place``."""
    for depth, call in enumerate(place.stack):
        for fact in run.met(call):
            if fact.place.stack == place.stack[:depth]:
                yield from fact.place.loops


def _holds_test(loop: Loop, guard: Guard) -> bool:
    """Whether ``guard`` is written in ``loop``: the names in a function are none of its callers'."""
    return is_inside(guard.test, loop) and origin(guard.test) == origin(loop)


def _turns_with(test: ast.AST, loop: Loop) -> bool:
    """Whether what ``test`` asks is set by an iteration of ``loop``; of an `or`, every part of it."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _turns_with(operand, loop)
        case ast.BoolOp(values=values):
            return all(_turns_with(value, loop) for value in values)
    asked = (part for part in ast.walk(test) if isinstance(part, ast.Name | ast.Attribute))
    return not _bound_by(loop).isdisjoint(map(source_text, asked))


@lru_cache(maxsize=32)
def _bound_by(loop: Loop) -> frozenset[str]:
    return names_bound_by(loop) | attributes_bound_by(loop)


def _known(guards: _Guards) -> _Known:
    return frozenset(said for guard in guards for said in conjuncts(guard.test, guard.taken))


def _holds(run: Run, guard: Guard, known: _Held) -> bool:
    if guard.asserted or tests_training(guard) or _is_given_mode(guard) or _asks_how_launched(guard):
        return True
    if (guard.test, guard.taken) in known or known.issuperset(conjuncts(guard.test, guard.taken)):
        return True
    ways = [*ways_to_hold(guard.test, guard.taken)]
    if len(ways) > 1 and any(known.issuperset(conjuncts(*way)) for way in ways):
        return True
    parts = parts_that_hold(guard.test, guard.taken)
    return all(known.issuperset(conjuncts(part, holds)) or comes_out_as(run, part) is holds for part, holds in parts)


def _is_given_mode(guard: Guard) -> bool:
    """Whether the condition is a parameter that is given the mode of a module: `drop(x, p, self.training)`."""
    return guard.taken and isinstance(guard.value, Attr) and guard.value.name == "training"


def _asks_how_launched(guard: Guard) -> bool:
    """Whether a condition asks for several processes or a GPU: what is said about DDP holds wherever there is DDP."""
    return isinstance(guard.test, ast.expr) and _LAUNCHED.search(ast.unparse(guard.test)) is not None


def cover_every_case(cases: Iterable[_Guards]) -> bool:
    """Whether one of ``cases``, each a set of conditions, is met whatever the conditions come out as."""
    sets = [known for guards in cases for known in _ways(guards)]
    if not sets:
        return False
    subjects = sorted({subject for case in sets for subject, _ in case})
    if len(subjects) > _MAX_CASES:
        return False
    for answers in product((True, False), repeat=len(subjects)):
        met = set(zip(subjects, answers, strict=True))
        if not any(case <= met for case in sets):
            return False
    return True


def _ways(guards: _Guards) -> Iterator[_Known]:
    """What holds in each way to meet ``guards``: of `a or b` one part."""
    said = ([frozenset(conjuncts(*way)) for way in ways_to_hold(guard.test, guard.taken)] for guard in guards)
    return (frozenset().union(*chosen) for chosen in product(*said))


def in_words(guards: _Guards) -> str:
    """``guards`` as a user says them: "`norm` is "BN" and not `frozen`"."""
    guards = tuple(guard for guard in guards if not _follows(guard, guards))
    exact = {_subject(guard) for guard in guards if _is_equal(guard)}
    said = [guard for guard in guards if _is_equal(guard) or _subject(guard) not in exact]
    return " and ".join(dict.fromkeys(map(_words, said)))


def _follows(guard: Guard, guards: _Guards) -> bool:
    """Whether ``guard`` is an `or`, and another one says that a part of it holds."""
    ways = [*ways_to_hold(guard.test, guard.taken)]
    known = _known(tuple(other for other in guards if other is not guard))
    return len(ways) > 1 and any(known.issuperset(conjuncts(*way)) for way in ways)


def _subject(guard: Guard) -> str | None:
    """What is compared, as text; None when nothing is."""
    return ast.dump(guard.test.left) if isinstance(guard.test, ast.Compare) else None


def _is_equal(guard: Guard) -> bool:
    return guard.taken and isinstance(guard.test, ast.Compare) and isinstance(guard.test.ops[0], ast.Eq | ast.Is)


def _words(guard: Guard) -> str:
    subject, taken = guard.plain
    match subject:
        case ast.ExceptHandler():
            return "an exception is caught"
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is() | ast.NotEq() | ast.IsNot() as op], comparators=[right]):
            equal = taken is isinstance(op, ast.Eq | ast.Is)
            value = f"`{_code(right)}`" if _text(right) is None else f'"{_text(right)}"'
            return f"`{_code(left)}` is {'' if equal else 'not '}{value}"
        case ast.expr() as test:
            return f"`{_code(test)}`" if taken else f"not `{_code(test)}`"
    return f"the case is `{_code(subject)}`"


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _code(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
