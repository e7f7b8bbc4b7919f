"""The cheapest plan under a byte budget, by mixed-integer linear programming.

Two facts keep the program small, and exact:

* *The closure needs no variables for buffers.* A saved activation is either available (kept, offloaded) or its producer
  runs again. So with ``u_o = 1`` when op ``o`` runs again, everything follows: bytes freed are those of the outputs of
  the ops with ``u_o = 1``, and the only constraints are ``u_p >= u_o`` where ``o`` reads something ``p`` made that
  autograd did not save (what is saved exists in backward either way).
* *Identical layers are counted, not named.* Of the ``N`` layers of a kind ``u_o`` is the number that run ``o`` again;
  the first ``u_o`` of them do. ``u_p >= u_o`` then holds in every layer, and every choice of plans has such a nested
  form of the same cost. Nested is also the best order for the peak: the layers that keep most come last, so that at
  any moment the fewest bytes are held. How many of the ``u_o`` lie before a moment is ``min(u_o, N before it)``, which
  the linear program finds by itself, in fractions if it likes: only the ``u_o`` have to be integers.

Which moments can peak says :mod:`.peak_candidates`.

The times of a layer that cannot be traced are those of a forward or two. They err by some
:data:`SHARE_OF_ERROR` and :data:`SECONDS_OF_ERROR`, so of the plans that these cannot tell apart the one is taken of
which share of time and share of bytes made again are the least in sum. Where some of them leave at most :data:`UNUSED`
of what the layers save unused of a budget, it is one of those.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...assignment import KEEP, Assignment
from ...errors import BudgetError
from ..costs.assess import Assessment, assess, layer_held
from ..costs.problem import HeadOption, Limits
from ..verbs.rebuild import needs_input
from .formulation import build
from .replayable import replayable
from .shortfall import held_shortfall, peak_shortfall

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from ...ledger import Buffer
    from ..costs.problem import Kind, Problem
    from .program import Group, Optimum, Program, Row


#: By how much the times of two plans over counted ledgers may differ by chance: a share, and seconds a layer.
SHARE_OF_ERROR = 0.1
SECONDS_OF_ERROR = 3e-4
#: The most that is taken for chance: a share. Where the least time is a millisecond or two, the seconds are much of it.
LARGEST_ERROR = 0.25
#: The share of what the layers hold without checkpointing that a plan over counted ledgers may leave of its budget.
UNUSED = 0.02


@dataclass(frozen=True, slots=True)
class Solution:
    """A plan for every layer in forward order, the head's option, and what the model predicts for them.

    ``gap`` is the share of its cost by which the plan may at most be worse than the best one.
    """

    layers: tuple[Assignment[int], ...]
    head: HeadOption
    predicted: Assessment
    gap: float = 0.0


def solve(problem: Problem, limits: Limits) -> Solution:
    """Find the plan of least added time.

    Every layer's backward is allowed what any plan may need; :func:`~.refine.solve_refined` charges what it does need.

    Args:
        problem: The layers and the loss head.
        limits: Upper bounds in bytes.

    Returns:
        A plan for every layer, and what the model predicts for them.

    Raises:
        BudgetError: No plan fits; the message says what the smallest one takes.
    """
    if limits.peak is not None and limits.peak < 0:
        raise BudgetError(_too_small(problem, limits))
    # The search breaks ties as it likes: with room for everything it must not chunk a head, whose last bit moves then.
    untouched = _untouched(problem)
    if untouched.predicted.within(limits):
        return untouched
    program = build(problem, limits)
    optimum = program.minimise(program.seconds)
    if optimum is not None:
        counted = any(kind.is_counted for kind in problem.kinds)
        if counted and limits.peak is None and limits.held is not None:
            everything = untouched.predicted.held
            optimum = _fullest(program, optimum, everything - limits.held + UNUSED * everything)
        return _read(program, optimum)
    # The search works in fractions, and may find nothing at the very bound that a plan meets to the byte.
    smallest = _least(problem, peak=limits.peak is not None)
    if smallest.predicted.within(limits):
        return smallest
    raise BudgetError(_too_small(problem, limits))


def _fullest(program: Program, best: Optimum, most: float) -> Optimum:
    """Of the plans that take about the time of ``best``, the one that saves a larger share of its bytes made again.

    It makes no more than ``most`` bytes again, where one of these plans does not. For that, plans count as equal that
    :data:`SECONDS_OF_ERROR` cannot tell apart, however little time all of it is: the fastest would be another one from
    run to run.
    """
    least, freed = _total(program.seconds, best), _total(program.freed, best)
    if not least or not freed:
        return best
    shares = {variable: seconds / least for variable, seconds in program.seconds.items()}
    both = {v: program.freed.get(v, 0.0) / freed + shares.get(v, 0.0) for v in program.freed.keys() | shares.keys()}
    error = SHARE_OF_ERROR + SECONDS_OF_ERROR * len(program.problem.order) / least
    bounds = [(error, most / program.unit), (min(LARGEST_ERROR, error), math.inf)]
    rows = list(program.rows)
    for error, freed_at_most in bounds:
        program.rows[:] = rows
        program.at_most(shares, 1.0 + error)
        if freed_at_most < math.inf:
            program.at_most(program.freed, freed_at_most)
        try:
            found = program.minimise(both)
        except RuntimeError:  # HiGHS found neither a plan nor that there is none
            return best
        if found is not None:
            return replace(found, gap=best.gap + error)
    return best


def _total(row: Row, optimum: Optimum) -> float:
    return sum(coefficient * float(optimum.values[variable]) for variable, coefficient in row.items())


def least_peak(problem: Problem) -> int:
    """The smallest peak in bytes that any plan has."""
    return _least(problem, peak=True).predicted.peak


def least_held(problem: Problem) -> int:
    """The fewest bytes that any plan holds after the forward."""
    return _least(problem, peak=False).predicted.held


def _least(problem: Problem, *, peak: bool) -> Solution:
    """A plan of the smallest peak, or one that holds the fewest bytes."""
    everything = _untouched(problem).predicted.peak
    program = build(problem, Limits(peak=everything if peak else None))
    optimum = program.minimise({program.peak if peak else program.held: 1.0})
    assert optimum is not None  # without limits nothing contradicts
    return _read(program, optimum)


def _untouched(problem: Problem) -> Solution:
    """Every layer keeps everything and the head runs as the model has it, which adds no time."""
    layers = tuple(Assignment.where(keep=problem.kind(i).everything) for i in range(len(problem.order)))
    return Solution(layers, problem.heads[0], assess(problem, layers, problem.heads[0]))


def short_of_host(problem: Problem, least: int) -> int | None:
    """The bytes of host memory that plans may use, where with more of it one has a smaller peak than ``least``."""
    if problem.link is None or problem.link.nbytes is None:
        return None
    unbound = replace(problem, link=replace(problem.link, nbytes=None))
    return problem.link.nbytes if least_peak(unbound) < least else None


def _too_small(problem: Problem, limits: Limits) -> str:
    if limits.peak is not None and (least := least_peak(problem)) > limits.peak:
        return peak_shortfall(limits, least, short_of_host(problem, least))
    if limits.held is not None and (least := least_held(problem)) > limits.held:
        return held_shortfall(problem, least)
    return "no plan fits the budget: none meets both bounds at once; raise one of them"


def _read(program: Program, optimum: Optimum) -> Solution:
    """The plans that the variables' values stand for."""
    problem, values = program.problem, optimum.values
    plans: dict[int, Assignment[int]] = {}
    for group in program.groups:
        kind = problem.kinds[group.kind]
        readers = replayable(kind).input_readers
        for position, layer in enumerate(group.layers):
            plans[layer] = _without_loss(kind, _layer_plan(kind, group, values, position), readers)
    layers = tuple(plans[i] for i in range(len(problem.order)))
    head = problem.heads[max(range(len(program.heads)), key=lambda i: float(values[program.heads[i]]))]
    return Solution(layers, head, assess(problem, layers, head), optimum.gap)


def _layer_plan(kind: Kind, group: Group, values: NDArray[np.float64], position: int) -> Assignment[int]:
    """The plan of the group's layer number ``position``: the first layers run ops again, the last ones keep."""
    again = {op: round(float(values[variable])) for op, variable in group.again.items()}
    stored: dict[str, set[int]] = {verb: set() for verb in (KEEP, *group.stored)}
    for b in kind.everything:
        producer = kind.ledger.buffers[b].producer
        counts = {verb: round(float(values[variables[b]])) for verb, variables in group.stored.items()}
        verb = _verb_at(position, again.get(producer, 0) if producer is not None else 0, counts)
        if not kind.ledger.buffers[b].nbytes:  # rebuilding it would only hold what that reads
            verb = KEEP
        if verb is not None:
            stored[verb].add(b)
    plan = Assignment.where(**stored)
    return plan if kind.own_input is None else _with_input(kind.own_input, kind, plan, group, values, position)


def _with_input(
    own: Buffer, kind: Kind, plan: Assignment[int], group: Group, values: NDArray[np.float64], position: int
) -> Assignment[int]:
    """``plan`` with the layer's own input stored in the first layers that hold it, as many as the values say."""
    counts = {verb: round(float(values[variable])) for verb, variable in group.inputs.items()}
    verb = _verb_at(position, 0, counts)
    if verb is None or verb == KEEP or not needs_input(kind, plan):
        return plan
    stored = dict(plan.stored)
    stored[verb] = plan.of(verb) | {own.index}
    return Assignment.where(**stored)


def _verb_at(position: int, rebuilt: int, counts: Mapping[str, int]) -> str | None:
    """What stores a buffer in the layer at ``position``; None in the first ``rebuilt`` layers, where nothing does."""
    if position < rebuilt:
        return None
    end = rebuilt
    for verb, count in counts.items():
        end += count
        if position < end:
            return verb
    return KEEP


def _without_loss(kind: Kind, plan: Assignment[int], readers: tuple[int, ...]) -> Assignment[int]:
    """``plan``, unless it holds the layer's input for a rebuild that frees less: then what needs the input is kept."""
    rebuilt = kind.everything - plan.held
    own = kind.own_input
    other = plan.keeping(b for b in rebuilt if kind.ledger.buffers[b].producer in readers)
    if own is not None and not own.saved:  # nothing reads it then
        other = other.among(other.held - {own.index})
    return other if layer_held(kind, other) < layer_held(kind, plan) else plan
