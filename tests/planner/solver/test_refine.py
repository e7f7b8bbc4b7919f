"""Plans charged with what they need themselves, not with what any plan may need."""

from dataclasses import replace

import pytest

from hf_ckpt.assignment import Assignment
from hf_ckpt.errors import BudgetError
from hf_ckpt.ledger import Source
from hf_ckpt.planner.costs.assemble import under
from hf_ckpt.planner.costs.assess import assess
from hf_ckpt.planner.costs.problem import HeadOption, Limits, Problem
from hf_ckpt.planner.costs.roofline import kind_of
from hf_ckpt.planner.solver.refine import refined, solve_leaving, solve_refined
from hf_ckpt.planner.solver.solve import least_peak, solve

from ..planner_ledgers import Builder, llama_kind
from ..planner_models import RATES

KIND = kind_of(llama_kind().ledger, RATES, gradients=64 << 20)
PROBLEM = Problem((KIND,), (0,) * 8, (HeadOption(1, 0),), overhead=1e-4)
MOST = assess(PROBLEM, [Assignment.where(keep=KIND.everything)] * 8, PROBLEM.heads[0]).peak


def own_peak(solution):
    return assess(under(PROBLEM, solution.layers), solution.layers, solution.head).peak


@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
def test_never_slower_than_the_cautious_plan_and_within_the_budget(share):
    limits = Limits(peak=int(share * MOST))
    cautious, found = solve(PROBLEM, limits), solve_refined(PROBLEM, limits)
    assert found.predicted.seconds <= cautious.predicted.seconds
    assert found.predicted.peak == own_peak(found) <= limits.peak


def test_memory_that_no_backward_needs_is_spent():
    everything = own_peak(solve(PROBLEM, Limits()))
    assert everything < MOST
    limits = Limits(peak=everything)
    assert solve(PROBLEM, limits).predicted.seconds > 0
    assert solve_refined(PROBLEM, limits).predicted.seconds < solve(PROBLEM, limits).predicted.seconds


def test_a_budget_below_the_cautious_least():
    smallest = refined(PROBLEM, solve(PROBLEM, Limits(peak=least_peak(PROBLEM))))
    if smallest.predicted.peak < least_peak(PROBLEM):
        assert solve_refined(PROBLEM, Limits(peak=smallest.predicted.peak)) == smallest
    with pytest.raises(BudgetError, match="no plan fits"):
        solve_refined(PROBLEM, Limits(peak=1 << 20))


def masked(*sizes):
    """Layers of so many saved bytes each, which a replay makes of a mask of 30 bytes."""
    b = Builder()
    x, mask = b.buffer(10, Source.INPUT, saved=True), b.buffer(30, Source.INPUT)
    for nbytes in sizes:
        b.op([x, mask], [(nbytes, True)])
    return Problem((kind_of(b.ledger(), RATES, gradients=0),), (0,))


@pytest.mark.parametrize("held", [150, 170, 175, 185, 190])
def test_a_mask_that_only_replays_read_is_within_a_bound_on_held_bytes(held):
    problem = masked(100, 60, 40)
    found = solve_refined(problem, Limits(held=held))
    assert found.predicted.held + under(problem, found.layers).shared <= held


@pytest.mark.parametrize("peak", [400, 420, 440, 460, 480])
def test_a_mask_that_only_replays_read_is_within_a_peak(peak):
    problem = masked(100, 60, 40)
    found = solve_refined(problem, Limits(peak=peak))
    assert found.predicted.peak == assess(under(problem, found.layers), found.layers, found.head).peak <= peak


HELD = Limits(held=solve(PROBLEM, Limits()).predicted.held // 2)


def test_a_bound_on_held_bytes_is_all_there_is_where_the_device_has_room():
    alone = solve_refined(PROBLEM, HELD)
    assert solve_refined(PROBLEM, replace(HELD, room=alone.predicted.peak)) == alone


def test_held_bytes_that_the_device_has_no_room_for_are_not_held():
    alone = solve_refined(PROBLEM, HELD)
    room = (least_peak(PROBLEM) + alone.predicted.peak) // 2
    found = solve_refined(PROBLEM, replace(HELD, room=room))
    assert own_peak(found) <= room < own_peak(alone)
    assert alone.predicted.seconds < found.predicted.seconds
    assert found.predicted.held < alone.predicted.held


@pytest.mark.parametrize("room", [-(1 << 30), 0, 1 << 20])
def test_a_device_without_room_gets_the_least_peak(room: int):
    found = solve_refined(PROBLEM, replace(HELD, room=room))
    assert room < own_peak(found) <= least_peak(PROBLEM)
    with pytest.raises(BudgetError, match="no plan fits the budget: the smallest one holds"):
        solve_refined(PROBLEM, Limits(held=1 << 20, room=room))


def test_where_no_plan_leaves_the_allocator_enough_the_head_takes_the_smallest_blocks():
    """A head in few chunks is faster, and its blocks are larger."""
    least = least_peak(PROBLEM)
    few, many = HeadOption(8, least // 64, seconds=1e-5), HeadOption(64, least // 512, seconds=8e-5)
    problem = replace(PROBLEM, heads=(HeadOption(1, 2 * least), few, many))
    assert least_peak(problem) == least
    found = solve_leaving(
        problem, Limits(peak=own_peak(solve(PROBLEM, Limits(peak=least))) - 1), Limits(peak=2 * least)
    )
    assert found.head == many
    assert found.predicted.peak <= least
