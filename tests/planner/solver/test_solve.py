"""The solver against brute force: every plan of every layer, scored by an independent reading of the memory model."""

import dataclasses
import itertools
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_ckpt.assignment import Assignment
from hf_ckpt.errors import BudgetError
from hf_ckpt.ledger import Buffer, LayerLedger, Source
from hf_ckpt.planner.costs.assess import assess
from hf_ckpt.planner.costs.problem import HeadOption, HostLink, Kind, Limits, Problem
from hf_ckpt.planner.solver import program
from hf_ckpt.planner.solver.program import Program
from hf_ckpt.planner.solver.refine import solve_refined
from hf_ckpt.planner.solver.shortfall import readable
from hf_ckpt.planner.solver.solve import least_held, least_peak, solve

from ..planner_ledgers import Builder, llama_kind, problems

#: Seconds of processor time. A tenth of a second is usual; what this catches is a search that does not end.
LONG = 5.0
SLOW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def subsets(items):
    return (frozenset(c) for r in range(len(items) + 1) for c in itertools.combinations(items, r))


def layer_plans(kind, offload):
    """Every plan that can be run."""
    for kept in subsets(sorted(kind.everything)):
        for moved in subsets(sorted(kind.everything - kept)) if offload else [frozenset()]:
            try:
                ops = kind.ledger.rebuild_ops(kept | moved)
            except ValueError:
                continue
            yield Assignment.where(keep=kept, offload=moved)
            if offload and is_held(kind, ops):
                yield Assignment.where(keep=kept, offload=moved | {kind.own_input.index})


def is_held(kind, ops):
    """Whether a layer that runs ``ops`` again holds its own input."""
    own = kind.own_input
    return own.saved or any(own.index in kind.ledger.ops[o].inputs for o in ops)


def layer_costs(problem, kind, plan):
    """(bytes held, seconds of rebuilding, bytes moved) of one layer under a plan."""
    buffers, ops = kind.ledger.buffers, kind.ledger.rebuild_ops(plan.held)
    size = sum(buffers[b].nbytes for b in plan.kept)
    own = next(b for b in buffers if b.source is Source.INPUT)
    if own.index not in plan.of("offload") and is_held(kind, ops):
        size += own.nbytes
    seconds = sum(kind.seconds[o] for o in ops) + (problem.overhead if ops else 0)
    return size, seconds, sum(buffers[b].nbytes for b in plan.of("offload"))


def timeline(problem, plans, head):
    """(held, peak, seconds), by walking forward and backward with a live-bytes counter."""
    costs = [layer_costs(problem, problem.kinds[k], plan) for k, plan in zip(problem.order, plans, strict=True)]
    return walk(problem, costs, staged(problem, plans), head)


def walk(problem, costs, room, head):
    """:func:`timeline` with what each layer costs under its plan, and the ``room`` that moved buffers take."""
    held = [size for size, _, _ in costs]
    live, seconds = problem.shared + sum(held), head.seconds + sum(seconds for _, seconds, _ in costs)
    peak = live + head.nbytes + room
    live += problem.head_gradients
    for k, size in zip(reversed(problem.order), reversed(held), strict=True):
        live -= size
        peak = max(peak, live + problem.kinds[k].transient)
        live += problem.kinds[k].gradients
    peak = max(peak, live + problem.late_gradients)
    if problem.link:
        t = sum(moved for _, _, moved in costs) / problem.link.bytes_per_second
        seconds += max(0, t - sum(problem.kinds[k].forward for k in problem.order))
        seconds += max(0, t - sum(problem.kinds[k].backward for k in problem.order))
    return sum(held), peak + room, seconds


def staged(problem, plans):
    """Bytes of the largest layer kind's moved buffers, which are on the device while one layer is rebuilt."""
    staging = {}
    for k, plan in zip(problem.order, plans, strict=True):
        staging.setdefault(k, set()).update(plan.of("offload"))
    return max(sum(problem.kinds[k].ledger.buffers[b].nbytes for b in s) for k, s in staging.items())


def brute_force(problem):
    kinds = [problem.kinds[k] for k in problem.order]
    choices = [[(p, layer_costs(problem, kind, p)) for p in layer_plans(kind, problem.link)] for kind in kinds]
    results = []
    for chosen in itertools.product(*choices):
        plans, costs = zip(*chosen, strict=True)
        room = staged(problem, plans) if problem.link else 0
        if problem.link and problem.link.nbytes is not None and sum(moved for *_, moved in costs) > problem.link.nbytes:
            continue
        results += [(walk(problem, costs, room, head), plans, head) for head in problem.heads]
    return results


def limits_for(data, results):
    peaks = sorted({peak for (_, peak, _), _, _ in results})
    helds = sorted({held for (held, _, _), _, _ in results})
    peak = data.draw(st.none() | st.sampled_from(peaks) | st.integers(peaks[0] - 1, peaks[-1] + 1))
    held = data.draw(st.none() | st.sampled_from(helds))
    return Limits(peak, held)


def check(problem, data):
    results = brute_force(problem)
    limits = limits_for(data, results)
    fitting = [
        seconds
        for (held, peak, seconds), _, _ in results
        if (limits.peak is None or peak <= limits.peak) and (limits.held is None or held <= limits.held)
    ]
    if not fitting:
        with pytest.raises(BudgetError):
            solve(problem, limits)
        return
    solution = solve(problem, limits)
    assert solution.predicted.within(limits)
    assert timeline(problem, solution.layers, solution.head) == pytest.approx(
        (solution.predicted.held, solution.predicted.peak, solution.predicted.seconds)
    )
    assert solution.predicted.seconds == pytest.approx(min(fitting), abs=1e-6)
    assert least_peak(problem) == min(peak for (_, peak, _), _, _ in results)
    assert least_held(problem) == min(held for (held, _, _), _, _ in results)


@SLOW
@given(problems(), st.data())
def test_as_good_as_the_best_of_all_plans(problem, data):
    check(problem, data)


@SLOW
@given(problems(max_layers=2, link=True, max_ops=4, max_saved=3), st.data())
def test_as_good_as_the_best_of_all_plans_with_offload(problem, data):
    check(problem, data)


@settings(SLOW, max_examples=50)
@given(problems(), st.floats(1, 4))
def test_the_least_a_plan_takes_is_a_budget_that_fits(problem, forwards):
    problem = dataclasses.replace(problem, forwards=forwards)
    for limits in (Limits(peak=least_peak(problem)), Limits(held=least_held(problem))):
        assert solve(problem, limits).predicted.within(limits)


@SLOW
@given(problems(max_layers=6), st.integers(0, 200), st.integers(0, 200))
def test_more_budget_is_never_slower(problem, a, b):
    low, high = sorted((a, b))
    try:
        tight = solve(problem, Limits(peak=low))
    except BudgetError:
        return
    assert solve(problem, Limits(peak=high)).predicted.seconds <= tight.predicted.seconds + 1e-6


def full_stack(count=80, **options):
    return Problem((llama_kind(),), (0,) * count, (HeadOption(1, 4 << 30),), overhead=1e-4, **options)


def peak_of_keeping_everything(problem):
    plans = [Assignment.where(keep=problem.kind(i).everything) for i in range(len(problem.order))]
    return assess(problem, plans, problem.heads[0])


@pytest.mark.parametrize("share", [0.35, 0.5, 0.66, 0.9])
@pytest.mark.parametrize("link", [None, HostLink(25e9)], ids=["rebuild", "offload"])
def test_eighty_layers_are_solved_at_once(share, link):
    problem = full_stack(link=link)
    limits = Limits(peak=int(share * peak_of_keeping_everything(problem).peak))
    start = time.process_time()
    solution = solve(problem, limits)
    assert time.process_time() - start < LONG
    assert solution.predicted.within(limits)


@pytest.mark.parametrize("pattern", [(0, 1), (0, 0, 0, 1), (0, 0, 0, 0, 0, 1)])
@pytest.mark.parametrize("gradients", [0, 400 << 20])
@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
def test_alternating_kinds_are_solved_to_the_optimum_at_once(pattern, gradients, share, monkeypatch):
    monkeypatch.setattr(program, "TIME_LIMIT", 60.0)  # of wall clock, and the machine may be busy
    thin = dataclasses.replace(llama_kind(inner=8192), gradients=gradients * 2 // 3)
    full = dataclasses.replace(llama_kind(), gradients=gradients)
    problem = Problem((thin, full), (pattern * 40)[:80], (HeadOption(1, 4 << 30),), overhead=1e-4)
    limits = Limits(peak=int(share * peak_of_keeping_everything(problem).peak))
    start = time.process_time()
    solution = solve(problem, limits)
    assert time.process_time() - start < LONG
    assert solution.predicted.within(limits)
    assert solution.gap <= program.GAP


def moved_bytes(problem, solution):
    plans = enumerate(solution.layers)
    return sum(problem.kind(i).ledger.buffers[b].nbytes for i, plan in plans for b in plan.of("offload"))


def test_no_plan_moves_more_than_the_host_has_room_for():
    problem = full_stack(32, link=HostLink(25e9))
    limits = Limits(peak=int(0.2 * peak_of_keeping_everything(problem).peak))
    moved = moved_bytes(problem, solve(problem, limits))
    bound = dataclasses.replace(problem, link=HostLink(25e9, nbytes=moved // 3))
    assert 0 < moved_bytes(problem, solve(bound, limits)) <= moved // 3
    assert moved_bytes(problem, solve(dataclasses.replace(problem, link=HostLink(25e9, 0)), limits)) == 0


def test_a_budget_that_only_more_host_memory_would_fit_says_so():
    problem = full_stack(32, link=HostLink(25e9))
    limits = Limits(peak=(least_peak(problem) + least_peak(full_stack(32))) // 2)
    solve(problem, limits)
    for find in (solve, solve_refined):
        with pytest.raises(
            BudgetError, match=r"at its peak, as offload may use no more than 64.00 MiB of this host's me"
        ):
            find(dataclasses.replace(problem, link=HostLink(25e9, 64 << 20)), limits)


def test_the_last_layer_keeps_everything_for_free():
    """It is alive while it is replayed anyway: whatever the budget, rebuilding it would buy nothing."""
    kind = llama_kind()
    problem = Problem((kind,), (0,) * 8, overhead=1e-4)
    solution = solve(problem, Limits(peak=least_peak(problem)))
    assert solution.layers[-1].kept == kind.everything
    assert all(plan.kept < kind.everything for plan in solution.layers[:-1])


def test_a_large_head_is_chunked_when_that_is_cheaper_than_replay():
    problem = Problem((llama_kind(),), (0,) * 8, (HeadOption(1, 8 << 30), HeadOption(8, 1 << 30, 1e-4)))
    everything = peak_of_keeping_everything(problem).peak
    assert solve(problem, Limits(peak=everything)).head.chunks == 1
    assert solve(problem, Limits(peak=everything - (4 << 30))).head.chunks == 8


@pytest.mark.parametrize("seconds", [1e-11, 0.0])
def test_where_everything_fits_the_head_is_the_models_own(seconds):
    """A chunked one takes less memory and changes the last bit: no rates may make them a tie."""
    problem = Problem((llama_kind(),), (0,) * 8, (HeadOption(1, 8 << 30), HeadOption(8, 1 << 30, seconds)))
    everything = peak_of_keeping_everything(problem).peak
    for limits in (Limits(peak=everything), Limits(peak=100 * everything), Limits()):
        assert solve(problem, limits).head.chunks == 1


def test_an_impossible_budget_says_what_the_least_is():
    problem = full_stack(8)
    with pytest.raises(BudgetError, match=f"adds {readable(least_peak(problem))} at its peak"):
        solve(problem, Limits(peak=1 << 20))


def test_without_a_bound_on_the_peak_the_last_layers_keep_most():
    problem = full_stack(8)
    held = peak_of_keeping_everything(problem).held
    kept = [len(plan.kept) for plan in solve(problem, Limits(held=held // 2)).layers]
    assert kept == sorted(kept)
    assert kept[0] < kept[-1]


@pytest.mark.parametrize(("seconds", "counted", "taken"), [(1.05, True, 60), (2.0, True, 100), (1.05, False, 100)])
def test_of_plans_that_counted_times_cannot_tell_apart_the_one_that_makes_the_fewest_bytes_again(
    seconds, counted, taken
) -> None:
    b = Builder()
    x = b.buffer(10, Source.INPUT, saved=True)
    b.op([x], [(100, True)])
    b.op([x], [(60, True)])
    ledger = dataclasses.replace(b.ledger(), workspace=0 if counted else None)
    problem = Problem((Kind(ledger, (1.0, seconds), 0),), (0,))
    solution = solve(problem, Limits(held=130))
    assert solution.predicted.held == 170 - taken
    assert (solution.gap > 0.01) == counted


def two_ways(seconds, nbytes, layers=1):
    b = Builder()
    x = b.buffer(10, Source.INPUT, saved=True)
    b.op([x], [(100, True)])
    b.op([x], [(nbytes, True)])
    ledger = dataclasses.replace(b.ledger(), workspace=0)
    return Problem((Kind(ledger, seconds, 0),), (0,) * layers)


@pytest.mark.parametrize(("seconds", "nbytes"), [((1e-4, 1.08e-4), 98), ((1e-4, 1.5e-4), 60), ((1.0, 1.05), 98)])
def test_no_plan_is_taken_that_costs_more_time_than_it_saves_bytes_or_a_third_more(seconds, nbytes) -> None:
    problem = two_ways(seconds, nbytes, layers=8)
    fewest = -(-8 * nbytes // 100)  # layers that have to make 100 bytes again, where 8 may make nbytes
    assert solve(problem, Limits(held=8 * (10 + 100))).predicted.seconds == pytest.approx(fewest * seconds[0])


@pytest.mark.parametrize(("seconds", "taken"), [(1.2e-3, 27), (1.35e-3, 27), (1.5e-3, 30)])
def test_of_plans_of_about_the_same_time_one_is_taken_that_uses_the_budget(seconds, taken) -> None:
    b = Builder()
    x = b.buffer(10, Source.INPUT, saved=True)
    for nbytes in (30, 27, 33):
        b.op([x], [(nbytes, True)])
    ledger = dataclasses.replace(b.ledger(), workspace=0)
    problem = Problem((Kind(ledger, (1e-3, seconds, 9.0), 0),), (0,))
    assert solve(problem, Limits(held=75)).predicted.held == 100 - taken


def test_the_overhead_of_replaying_a_layer_is_in_its_counted_times() -> None:
    problem = dataclasses.replace(two_ways((1.0, 2.0), 60), overhead=5.0)
    assert solve(problem, Limits(held=110)).predicted.seconds == pytest.approx(1.0)


def test_where_the_second_search_ends_without_an_answer_the_first_ones_plan_is_taken(monkeypatch) -> None:
    real, searches = Program.minimise, []

    def minimise(program, cost):
        searches.append(cost)
        if len(searches) == 2:
            raise RuntimeError("the plan's linear program could not be solved")
        return real(program, cost)

    monkeypatch.setattr(Program, "minimise", minimise)
    assert solve(two_ways((1.0, 1.05), 60), Limits(held=130)).predicted.held == 70
    assert len(searches) == 2


def test_inputs_of_the_first_layers_are_offloaded_as_far_as_it_takes():
    problem = full_stack(link=HostLink(55e9))
    own, floor = problem.kinds[0].own_input, full_stack()
    held = least_held(floor)
    for share in (0.75, 0.25):
        plans = solve(problem, Limits(held=int(share * held))).layers
        sent = [own.index in plan.of("offload") for plan in plans]
        assert sum(sent) > 0
        assert sent == sorted(sent, reverse=True), "the first ones are held longest"
    with pytest.raises(BudgetError):
        solve(floor, Limits(held=held - 1))
    assert least_held(problem) == 0


def test_a_layer_that_is_not_traced_holds_its_input():
    ledger = LayerLedger("Whole", (Buffer(0, 8, Source.INPUT, None, (0,), (8,), "uint8"),), ())
    problem = Problem((Kind(ledger, (), transient=9),), (0,) * 3, link=HostLink(1.0))
    assert least_held(problem) == 3 * 8
