"""The solver allows every layer's backward what any plan may need; here a plan is charged what it needs itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import BudgetError
from ..costs.assemble import under
from ..costs.assess import assess
from ..costs.problem import Limits
from .shortfall import peak_shortfall
from .solve import least_held, least_peak, short_of_host, solve

if TYPE_CHECKING:
    from ..costs.problem import Problem
    from .solve import Solution

#: How often memory that a plan turned out not to need is offered again, and the least share of the peak worth it.
ROUNDS = 4
WORTH = 0.005


def refined(problem: Problem, solution: Solution) -> Solution:
    """The solution with the peak that its own plans have."""
    return replace(solution, predicted=assess(under(problem, solution.layers), solution.layers, solution.head))


def solve_refined(problem: Problem, limits: Limits) -> Solution:
    """The fastest plan found within ``limits``, which may be faster than what :func:`solve` dares.

    Raises :class:`BudgetError` as :func:`solve` does, when not even the smallest plan's own peak fits.
    """
    best = _with_what_replays_read(problem, limits, _first(problem, limits))
    if limits.peak is None:
        return _in_the_room(problem, limits, best)
    bound = limits.peak + max(0, limits.peak - best.predicted.peak)
    for _ in range(ROUNDS):
        if best.predicted.seconds == 0 or bound - limits.peak < WORTH * limits.peak:
            break
        found = refined(problem, solve(problem, replace(limits, peak=bound)))
        if not found.predicted.within(limits):
            bound -= (bound - limits.peak) // 2
            continue
        unused = limits.peak - found.predicted.peak
        best = min(best, found, key=lambda solution: solution.predicted.seconds)
        if unused < WORTH * limits.peak:
            break
        bound += unused
    return best


def solve_leaving(problem: Problem, limits: Limits, bare: Limits) -> Solution:
    """The fastest plan within ``limits``; one of least peak where these leave the device's allocator too much for any.

    What is left to it is a wish, not a bound: ``bare`` are the limits that leave nothing. Raises :class:`BudgetError`
    where not even they can be met.
    """
    try:
        return solve_refined(problem, limits)
    except BudgetError:
        least = least_peak(problem)
        if bare.peak is None or bare.peak < least:
            return solve_refined(problem, bare)
        return _of_least_peak(problem, least, limits.peak or 0)


def _of_least_peak(problem: Problem, least: int, wished: int) -> Solution:
    """The fastest plan of the least peak, of those whose loss stays below the peak wished for where there is one.

    Where gradients or a layer's own backward make the peak, layers may hold more at no higher peak, and a head may run
    in fewer chunks. What they hold, and the blocks of large chunks, leave the allocator blocks that nothing else fits.
    """
    head = min(problem.heads, key=lambda option: option.nbytes)
    frugal = replace(problem, heads=(head,))
    held = max(wished - problem.always - head.nbytes, least_held(frugal))
    try:
        return solve(frugal, Limits(peak=least, held=held))
    except BudgetError:
        return solve(problem, Limits(peak=least))


def _with_what_replays_read(problem: Problem, limits: Limits, found: Solution) -> Solution:
    """A plan that stays within the bounds with the shared inputs that only its replays read."""
    if limits.held is None:
        return _within_the_peak(problem, limits, found)
    read = under(problem, found.layers).shared - problem.shared
    if found.predicted.held + read <= limits.held:
        return found
    try:
        return refined(problem, solve(problem, replace(limits, held=limits.held - read)))
    except BudgetError:  # nothing is smaller
        return found


def _within_the_peak(problem: Problem, limits: Limits, found: Solution) -> Solution:
    for _ in range(ROUNDS):
        if found.predicted.within(limits):
            break
        read = under(problem, found.layers).shared
        try:
            better = min(
                found,
                refined(problem, solve(replace(problem, shared=read), limits)),
                key=lambda solution: (not solution.predicted.within(limits), solution.predicted.peak),
            )
        except BudgetError:  # nothing is smaller
            break
        if better is found:  # the next round would solve the same problem
            break
        found = better
    return found


def _in_the_room(problem: Problem, limits: Limits, found: Solution) -> Solution:
    """A plan that the device has room for too; the one of least peak where it has room for none."""
    if limits.room is None or found.predicted.peak <= limits.room:
        return found
    try:
        return solve_refined(problem, replace(limits, peak=limits.room, room=None))
    except BudgetError:
        least = refined(problem, solve(problem, Limits(peak=least_peak(problem))))
        return least if least.predicted.within(limits) else found


def _first(problem: Problem, limits: Limits) -> Solution:
    try:
        return refined(problem, solve(problem, limits))
    except BudgetError:
        if limits.peak is None:
            raise
        least = refined(problem, solve(problem, replace(limits, peak=least_peak(problem))))
        if least.predicted.within(limits):
            return least
        if least.predicted.peak <= limits.peak:
            raise
        peak = least.predicted.peak
        raise BudgetError(peak_shortfall(limits, peak, short_of_host(problem, peak))) from None
