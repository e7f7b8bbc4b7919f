"""The pictures of `hf-ckpt plan` and `explain`: which file each may be, and what is drawn."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from ...errors import CkptError, MissingExtraError
from ...planner.explain.plot import SUFFIXES
from ...whole_file import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ...planner.explain.page import Chart
    from ...planner.explain.plot import DrawnPlan
    from ...policy import Policy
    from ..study import Study

#: Budgets on the frontier.
_POINTS = 9


def check_picture(path: Path | None) -> None:
    """Refuse a file that cannot be drawn before anything is traced. Raises BadParameter and MissingExtraError."""
    if path is None:
        return
    if not path.parent.is_dir():
        raise click.BadParameter(f"the folder {path.parent} does not exist", param_hint="--plot")
    if path.suffix.lower() not in SUFFIXES:
        raise click.BadParameter(f"{path.name} ends with none of {', '.join(SUFFIXES)}", param_hint="--plot")
    if find_spec("matplotlib") is None:
        raise MissingExtraError("--plot needs matplotlib, which is not installed: run `pip install 'hf-ckpt[plot]'`")


def check_page(path: Path | None) -> None:
    """Refuse a page that cannot be written before anything is traced. Raises BadParameter."""
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"the folder {path.parent} does not exist", param_hint="--html")


def save_page(path: Path, html: str) -> None:
    """Write a page, whole or not at all. Raises CkptError."""
    try:
        write_whole(path, html.encode())
    except OSError as error:
        raise CkptError(f"{path} cannot be written: {error.strerror or error}") from error


def write_page(study: Study, policies: Sequence[Policy], path: Path) -> None:
    """Write memory over a step, layer by layer, of the policies that have a forecast at the study's size of batch."""
    from ...planner.explain.page import memory_page

    charts = []
    for policy in policies:
        with suppress(CkptError):  # the table says why
            charts.append(_chart(study, policy))
    if not charts:
        raise CkptError(f"no policy has a forecast, so there is nothing to draw into {path}")
    title = f"{study.subject}, {study.inputs.rates.device}"
    save_page(path, memory_page(title, charts, study.inputs.memory.total))


def _chart(study: Study, policy: Policy) -> Chart:
    from ...measuring.forecast import as_solution, parts
    from ...planner.explain.page import Chart, on_top_of
    from .rows import optimizer_parts

    problem, solution = as_solution(study.inputs, study.resolve(policy))
    state = study.inputs.memory.used + study.inputs.to_come
    return Chart(str(policy), on_top_of(state, (*parts(problem, solution), optimizer_parts(study))))


def draw_plans(study: Study, policies: Sequence[Policy], path: Path) -> None:
    """Draw the policies that have a forecast at the study's size of batch, and the frontier of all plans."""
    from ...measuring.forecast import as_solution
    from ...planner.explain.findings import frontier
    from ...planner.explain.plot import plot_plans
    from ...policy import parse_policy

    drawn = []
    for policy in policies:
        try:
            drawn.append(_drawn(study, policy))
        except CkptError:
            continue  # the table says why
    if not drawn:
        raise CkptError(f"no policy has a forecast, so there is nothing to draw into {path}")
    problem, _ = as_solution(study.inputs, study.resolve(parse_policy("none")))
    title = f"{study.subject}\n{study.inputs.rates.device}"
    plot_plans(frontier(problem, _POINTS), drawn, path, title=title, memory=study.inputs.memory.total)


def _drawn(study: Study, policy: Policy) -> DrawnPlan:
    from ...measuring.forecast import as_solution, moments
    from ...planner.explain.plot import DrawnPlan
    from .rows import optimizer_step

    problem, solution = as_solution(study.inputs, study.resolve(policy))
    state = study.inputs.memory.used + study.inputs.to_come
    alive = (*moments(problem, solution), optimizer_step(study))
    whole = tuple(replace(moment, nbytes=moment.nbytes + state) for moment in alive)
    return DrawnPlan(str(policy), solution.predicted.held, solution.predicted.seconds, whole)
