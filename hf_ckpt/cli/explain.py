"""``hf-ckpt explain``: the ledger behind a plan, the frontier of all plans, and what more memory would buy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from ..planner.plot import plot_frontier
from ..planner.tables import frontier_table, gain_line, ledger_table
from ..policy import parse_policy
from .subject import Subject, subject_options

if TYPE_CHECKING:
    from rich.table import Table

    from ..planner.problem import Problem
    from ..planner.solve import Solution


@click.command("explain")
@subject_options()
@click.option("--policy", default="budget=0.5", show_default=True)
@click.option("--memory", help="Memory of the device to plan for, such as 80GiB; default: this machine's.")
@click.option("--optimizer", default="adamw_torch", show_default=True, help="TrainingArguments' `optim` name.")
@click.option("--points", type=click.IntRange(2), default=9, show_default=True, help="Budgets on the frontier.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Also draw the frontier into this PNG.")
def command(subject: Subject, policy: str, memory: str | None, optimizer: str, points: int, plot: Path | None) -> None:
    """Show every saved tensor of a layer with its bytes, its verb and the price of rebuilding it.

    Then the frontier (the fastest plan at each budget), and what the next GiB would buy. Nothing is trained and no
    weight is loaded; times are those of this machine. Of a multimodal model these are the language layers.
    """
    parsed = parse_policy(policy)
    if plot is not None and not plot.parent.is_dir():
        raise click.BadParameter(f"the folder {plot.parent} does not exist", param_hint="--plot")

    from ..measuring.forecast import as_solution, limits_for
    from ..planner.explain import frontier, next_gain
    from .study import study

    found_study = study(subject, memory, optimizer)
    resolved = found_study.resolve(parsed)
    problem, solution = as_solution(found_study.inputs, resolved)
    console = Console()
    for table in _ledgers(problem, solution):
        console.print(table)
    found = frontier(problem, points)
    console.print(frontier_table(found))
    limits = limits_for(found_study.inputs, resolved, problem)
    if limits is not None:
        console.print(gain_line(next_gain(problem, limits, solution)))
    if plot is not None:
        plot_frontier(found, plot, marked=solution.predicted.held)
        console.print(f"wrote {plot}")


def _ledgers(problem: Problem, solution: Solution) -> list[Table]:
    from ..planner.explain import kinds_in_use, ledger_rows

    return [
        ledger_table(
            ledger_rows(problem.kinds[kind], plan),
            f"{_span(numbers)} ({problem.kinds[kind].ledger.class_name})",
        )
        for numbers, kind, plan in kinds_in_use(problem, solution)
    ]


def _span(numbers: tuple[int, ...]) -> str:
    return f"layer {numbers[0]}" if len(numbers) == 1 else f"layers {numbers[0]} to {numbers[-1]}"
