"""The moments of a step, and the peak that the solver predicts, are one account."""

from hypothesis import given
from hypothesis import strategies as st

from hf_ckpt.assignment import Assignment
from hf_ckpt.planner.costs.assess import assess
from hf_ckpt.planner.costs.parts import parts_over_step
from hf_ckpt.planner.costs.timeline import Phase, timeline, worst

from ..planner_ledgers import problems


@given(problems(), st.data())
def test_the_worst_moment_is_the_predicted_peak(problem, data):
    keeps = [data.draw(st.booleans()) for _ in problem.order]
    plans = [
        Assignment.where(keep=problem.kind(i).everything if keep else _only_what_must_stay(problem.kind(i)))
        for i, keep in enumerate(keeps)
    ]
    head = problem.heads[0]
    moments = timeline(problem, plans, head)
    assert worst(moments).nbytes == assess(problem, plans, head).peak
    assert tuple(taken.moment for taken in parts_over_step(problem, plans, head)) == moments
    phases = [moment.phase for moment in moments]
    layers = len(problem.order)
    assert phases == [*[Phase.FORWARD] * layers, Phase.LOSS, *[Phase.BACKWARD] * layers, Phase.END]


def _only_what_must_stay(kind):
    kept = set(kind.everything)
    for buffer in sorted(kind.everything):
        try:
            kind.ledger.rebuild_ops(frozenset(kept - {buffer}))
        except ValueError:
            continue
        kept.remove(buffer)
    return frozenset(kept)
