"""From what a batch was measured to take, and a budget, to a plan for every layer."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ...engine import plan_of
from ...errors import BudgetError
from ...policy.decision import RecomputeLayer
from ..budget import NOTHING_SPARE, AutoBudget, limits_of
from ..costs.assemble import under, waited_for
from ..costs.problem import Limits
from ..solver.refine import solve_leaving
from ..solver.shortfall import room_shortfall
from ..solver.solve import least_held, least_peak, solve
from .per_batch import MadePlan

if TYPE_CHECKING:
    from ...ledger import LayerLedger
    from ..budget import Budget
    from ..costs.problem import Problem
    from ..memory.fragmentation import Fragmentation, Spare
    from ..memory.room import Taken
    from ..solver.solve import Solution
    from .group import Group
    from .per_batch import BatchSize, PlanBook

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Measured:
    """A batch of one size: the ledger of each layer (None: it had none), the planner's problem, what else is there."""

    ledgers: tuple[LayerLedger | None, ...]
    problem: Problem
    taken: Taken

    @cached_property
    def least_held(self) -> int:
        """Bytes held by the smallest plan, what its layers share included, and by the head as the model has it."""
        return least_held(self.problem) + self.problem.shared + self.problem.heads[0].held


@dataclass(frozen=True, slots=True)
class Demand:
    """What a plan must keep to.

    ``factor`` of the budget is to be used; ``forwards`` are alive together (see :class:`Problem`), or ``alive`` bytes
    are held already by ``others``, forwards that ran under other plans. ``spare`` is left to the device's allocator.
    ``waits`` is whether new gradients wait until the last forward's part of them is there.
    """

    budget: Budget
    factor: float = 1.0
    forwards: float = 1.0
    alive: int = 0
    spare: Spare = NOTHING_SPARE
    others: float = 0.0
    waits: bool = False

    def on_host(self, taken: Taken) -> int | None:
        """Bytes of host memory for one forward: those alive together share it."""
        return None if taken.host is None else int(taken.host / (self.forwards + self.others))


@dataclass(frozen=True, slots=True)
class Demands:
    """What plans must keep to: the budget, tightened as often as ``book`` says; ``group`` is alive together."""

    budget: Budget
    book: PlanBook
    group: Group | None
    fragmentation: Fragmentation

    def of(self, size: BatchSize) -> Demand:
        """That of a plan under which every forward of a group runs, the largest of this size."""
        forwards = 1.0 if self.group is None else self.group.weight(size)
        waits = self.group is not None and self.group.adds and forwards > 1
        return Demand(self.budget, self.book.factor, forwards, spare=self.fragmentation.spare, waits=waits)

    def beside(self, alive: int, others: float) -> Demand:
        """That of a plan for one forward, while ``others`` like it hold so many bytes."""
        waits = self.group is not None and self.group.adds
        spare = self.fragmentation.spare
        return Demand(self.budget, self.book.factor, alive=alive, spare=spare, others=others, waits=waits)


def make_plan(measured: Measured, demand: Demand) -> MadePlan:
    """The fastest plan that meets the demand. Raises BudgetError when none does; ``auto`` then takes the smallest."""
    problem = waited_for(measured.problem) if demand.waits else measured.problem
    problem = replace(problem, forwards=demand.forwards)
    if problem.link is not None:
        problem = replace(problem, link=replace(problem.link, nbytes=demand.on_host(measured.taken)))
    try:
        bare = _limits(problem, measured.taken, replace(demand, spare=NOTHING_SPARE))
        solution = solve_leaving(problem, _limits(problem, measured.taken, demand), bare)
    except BudgetError as error:
        told = BudgetError(f"{_together(demand)}{error}")
        if not isinstance(demand.budget, AutoBudget) or measured.taken.memory.total is None:
            raise told from None
        _log.warning("trying the smallest plan: %s", told)
        solution = solve(problem, Limits(peak=least_peak(problem)))
        return replace(_written(measured, solution, demand), smallest=True)
    room = bare.room
    if room is not None and solution.predicted.peak > room:
        _log.warning(room_shortfall(room, solution.predicted.peak, least_peak(problem)))
    return _written(measured, solution, demand)


def _limits(problem: Problem, taken: Taken, demand: Demand) -> Limits:
    spare = demand.spare
    if spare.share:  # what was seen of the allocator has them
        spare = replace(spare, nbytes=spare.nbytes + taken.whole.cached)
    limits = limits_of(demand.budget, problem, taken.memory, taken.to_come, spare)
    if limits.peak is None:
        assert limits.held is not None
        least = min(limits.held, least_held(problem)) if demand.factor < 1 else 0
        room = None if limits.room is None else int(limits.room * demand.factor)
        return replace(limits, held=max(least, int(limits.held * demand.factor)), room=room)
    spared = limits.peak - int(limits.peak * demand.factor) + demand.alive
    return replace(limits, peak=limits.peak - spared, beside=limits.beside + spared)


def _together(demand: Demand) -> str:
    if demand.forwards == 1 and not demand.alive:
        return ""
    return "several forwards run before one backward, and what they save is alive together: "


def _written(measured: Measured, solution: Solution, demand: Demand) -> MadePlan:
    """What the solution writes to the engines."""
    ledgers, problem = measured.ledgers, measured.problem
    writes = tuple(
        RecomputeLayer() if ledger is None else plan_of(ledger, plan)
        for ledger, plan in zip(ledgers, solution.layers, strict=True)
    )
    whole = (
        i
        for i, plan in enumerate(solution.layers)
        if ledgers[i] and plan.held == plan.kept == problem.kind(i).everything
    )
    taken = measured.taken
    alive = taken.memory.used + taken.to_come + demand.alive + solution.predicted.peak
    held = solution.predicted.held + under(problem, solution.layers).shared + solution.head.held
    return MadePlan(solution, writes, frozenset(whole), alive, held)
