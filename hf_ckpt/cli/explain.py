"""``hf-ckpt explain``: the ledger behind a plan, the frontier of all plans, and what more memory would buy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from ..compat.start_up import import_transformers
from ..planner.explain.plain import as_plain
from ..planner.explain.plot import plot_frontier
from ..planner.explain.tables import frontier_table, gain_line, tensors_table
from ..policy import parse_policy
from .forecast.files import check_page, check_picture
from .garbage import few_collections
from .native_output import no_native_output
from .setup import setup_options
from .subject import Subject, gpu_options, subject_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..planner.memory.setup import Setup


@click.command("explain")
@subject_options()
@click.option("--policy", default="budget=0.5", show_default=True, help="The policy to explain.")
@gpu_options
@setup_options
@click.option("--points", type=click.IntRange(2), default=9, show_default=True, help="Budgets on the frontier.")
@click.option(
    "--plot", type=click.Path(path_type=Path, dir_okay=False), help="Also draw the frontier into this PNG or SVG."
)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write memory over a step, layer by layer, into this HTML file.",
)
@click.option("--json", "in_json", is_flag=True, help="Write all of it as JSON: sizes in bytes, times in seconds.")
@few_collections()
def command(
    subject: Subject,
    setup: Callable[[Subject], Setup],
    policy: str,
    gpu: str | None,
    memory: str | None,
    points: int,
    plot: Path | None,
    html: Path | None,
    in_json: bool,
) -> None:
    """Show every saved tensor: its bytes, decision and price.

    The table says in how many layers it is kept or rebuilt. Behind it stand the frontier (the fastest plan at each
    budget), and what the next GiB would buy. Nothing is trained and no weight is loaded; times are those of --gpu,
    or of this machine. A multimodal model is explained by its language layers.
    """
    parsed = parse_policy(policy)
    check_picture(plot)
    check_page(html)

    with no_native_output():
        import_transformers()
        # start-up: help and the checks of options need no torch
        from ..measuring.forecast import limits_for
        from ..planner.explain.findings import frontier, next_gain, tensor_rows
        from .forecast.pictures import write_page
        from .study import study

        studied = study(subject, memory, setup(subject), gpu)
        problem, solution = studied.solve(parsed)
        rows, found = tensor_rows(problem, solution), frontier(problem, points)
        limits = limits_for(studied.inputs, studied.resolve(parsed), problem)
        gain = None if limits is None else next_gain(problem, limits, solution)
        if plot is not None:
            plot_frontier(found, plot, marked=solution.predicted.held)
        if html is not None:
            write_page(studied, list(dict.fromkeys((parse_policy("none"), parsed))), html)
    if in_json:
        click.echo(json.dumps({"policy": str(parsed), **as_plain(rows, found, gain)}, indent=2))
        return
    console = Console()
    console.print(tensors_table(rows, f"saved tensors of {studied.subject}\nunder {parsed}, largest first"))
    console.print(frontier_table(found))
    if gain is not None:
        console.print(gain_line(gain))
    for written in filter(None, (plot, html)):
        console.print(f"wrote {written}")
