"""What the planner asks of a verb, shown on one that no file has: storing a buffer in half of its bytes."""

from __future__ import annotations

import pytest

from hf_ckpt.planner import verb as costs
from hf_ckpt.planner.budget import held_without_checkpointing
from hf_ckpt.planner.costs import assess as assessing
from hf_ckpt.planner.costs.problem import HeadOption, Limits, Problem
from hf_ckpt.planner.solver.solve import solve

from ..planner_ledgers import llama_kind

PROBLEM = Problem((llama_kind(),), (0,) * 8, (HeadOption(1, 1 << 20),), overhead=1e-4)
#: Less than any op takes.
SECONDS = 1e-9


class Halve(costs.StoringVerb):
    name = "halve"

    def held_bytes(self, buffer):
        return buffer.nbytes // 2

    def layer_seconds(self, problem, kind, plan):
        return SECONDS * len(plan.of(self.name))

    def add_costs(self, program):
        for group in program.groups:
            for variable in group.stored[self.name].values():
                program.add_seconds(variable, SECONDS)


@pytest.fixture
def known(monkeypatch):
    known = tuple(sorted((*costs.verbs(), Halve()), key=lambda verb: verb.name))
    for module in (costs, assessing):
        monkeypatch.setattr(module, "verbs", lambda: known)


@pytest.mark.parametrize("share", [0.5, 0.75, 0.95])
@pytest.mark.parametrize("bounded", ["held", "peak"])
def test_a_verb_in_the_registry_is_planned_with(share, bounded, request):
    most = held_without_checkpointing(PROBLEM)
    limits = Limits(**{bounded: int(share * most) + (0 if bounded == "held" else PROBLEM.backward_bytes[0])})
    without = solve(PROBLEM, limits).predicted.seconds
    request.getfixturevalue("known")
    solution = solve(PROBLEM, limits)
    assert solution.predicted.within(limits)
    assert solution.predicted.seconds < without or without == 0
    stored = [len(plan.of("halve")) for plan in solution.layers]
    assert sum(stored) or without == 0
    assert solution.predicted.seconds == pytest.approx(SECONDS * sum(stored), abs=1e-12)


def test_every_file_is_one_verb():
    assert [verb.name for verb in costs.verbs()] == ["keep", "offload", "rebuild", "redraw"]
    assert [verb.name for verb in costs.between_verbs(PROBLEM)] == []
