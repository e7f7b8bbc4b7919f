"""Plans keep to the host's memory as to the device's: what forwards that are alive together move, moves there together."""

from __future__ import annotations

import pytest

from hf_ckpt.assignment import Assignment
from hf_ckpt.errors import BudgetError
from hf_ckpt.ledger import Source
from hf_ckpt.planner.batches.made_plan import Demand, Measured, make_plan
from hf_ckpt.planner.budget import DeviceMemory, PeakBudget
from hf_ckpt.planner.costs.assess import assess
from hf_ckpt.planner.costs.problem import HostLink, Kind, Problem
from hf_ckpt.planner.memory.room import Taken
from hf_ckpt.planner.solver.solve import least_peak

from ..planner_ledgers import Builder, llama_kind

KIND, LAYERS = llama_kind(), 8
PROBLEM = Problem((KIND,), (0,) * LAYERS, link=HostLink(25e9))
TIGHT = PeakBudget(int(1.5 * least_peak(PROBLEM)))


def measured(host: int | None) -> Measured:
    return Measured((KIND.ledger,) * LAYERS, PROBLEM, Taken(DeviceMemory(80 << 30, 0), 0, host))


def moved(host: int | None, demand: Demand) -> int:
    plans = make_plan(measured(host), demand).solution.layers
    return sum(KIND.ledger.buffers[b].nbytes for plan in plans for b in plan.of("offload"))


def test_a_plan_moves_no_more_than_the_host_has() -> None:
    unbound = moved(None, Demand(TIGHT))
    assert unbound
    assert 0 < moved(unbound // 2, Demand(TIGHT)) <= unbound // 2


@pytest.mark.parametrize("demand", [Demand(PeakBudget(2 * TIGHT.nbytes), forwards=2.0), Demand(TIGHT, others=1.0)])
def test_forwards_that_are_alive_together_share_the_host(demand: Demand) -> None:
    unbound = moved(None, demand)
    assert unbound
    assert 2 * moved(unbound, demand) <= unbound


def test_a_budget_that_needs_more_of_the_host_is_one_sentence() -> None:
    budget = PeakBudget(least_peak(PROBLEM))
    make_plan(measured(None), Demand(budget))
    with pytest.raises(
        BudgetError, match=r"as offload may use no more than 1\.00 MiB of this host's memory; raise it to"
    ):
        make_plan(measured(1 << 20), Demand(budget))


def test_layers_that_keep_all_but_their_saved_input_do_not_run_untouched() -> None:
    builder = Builder()
    own = builder.buffer(10, Source.INPUT, saved=True)
    (made,) = builder.op([own], [(100, True)], rebuildable=False)
    ledger = builder.ledger()
    problem = Problem((Kind(ledger, (1.0,), transient=0),), (0,) * LAYERS, link=HostLink(1.0))
    kept = assess(problem, (Assignment.where(keep=[made]),) * LAYERS, problem.heads[0])
    measured = Measured((ledger,) * LAYERS, problem, Taken(DeviceMemory(80 << 30, 0), 0, None))
    plan = make_plan(measured, Demand(PeakBudget(kept.peak - 10)))
    sent = {i for i, layer in enumerate(plan.solution.layers) if layer == Assignment.where(keep=[made], offload=[own])}
    assert sent == {0, 1, 2}
    assert plan.whole == set(range(LAYERS)) - sent
