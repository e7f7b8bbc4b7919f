"""What `hf-ckpt plan` and `explain` draw: plans, their frontier, and memory over a step."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import CkptError
from ...measuring.forecast import moments, parts
from ...planner.explain.findings import frontier
from ...planner.explain.page import Chart, memory_page, on_top_of
from ...planner.explain.plot import DrawnPlan, plot_plans
from ...policy import parse_policy
from .files import save_page
from .rows import optimizer_parts, optimizer_step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ...policy import Policy
    from ..study import Study

#: Budgets on the frontier.
_POINTS = 9


def write_page(study: Study, policies: Sequence[Policy], path: Path) -> None:
    """Write memory over a step, layer by layer, of the policies that have a forecast at the study's size of batch."""
    charts = []
    for policy in policies:
        with suppress(CkptError):  # the table says why
            charts.append(_chart(study, policy))
    if not charts:
        raise CkptError(f"no policy has a forecast, so there is nothing to draw into {path}")
    title = f"{study.subject}, {study.inputs.rates.device}"
    save_page(path, memory_page(title, charts, study.inputs.memory.total))


def _chart(study: Study, policy: Policy) -> Chart:
    problem, solution = study.solve(policy)
    state = study.inputs.memory.used + study.inputs.to_come
    return Chart(str(policy), on_top_of(state, (*parts(problem, solution), optimizer_parts(study))))


def draw_plans(study: Study, policies: Sequence[Policy], path: Path) -> None:
    """Draw the policies that have a forecast at the study's size of batch, and the frontier of all plans."""
    drawn = []
    for policy in policies:
        try:
            drawn.append(_drawn(study, policy))
        except CkptError:
            continue  # the table says why
    if not drawn:
        raise CkptError(f"no policy has a forecast, so there is nothing to draw into {path}")
    problem, _ = study.solve(parse_policy("none"))
    title = f"{study.subject}\n{study.inputs.rates.device}"
    plot_plans(frontier(problem, _POINTS), drawn, path, title=title, memory=study.inputs.memory.total)


def _drawn(study: Study, policy: Policy) -> DrawnPlan:
    problem, solution = study.solve(policy)
    state = study.inputs.memory.used + study.inputs.to_come
    alive = (*moments(problem, solution), optimizer_step(study))
    whole = tuple(replace(moment, nbytes=moment.nbytes + state) for moment in alive)
    return DrawnPlan(str(policy), solution.predicted.held, solution.predicted.seconds, whole)
