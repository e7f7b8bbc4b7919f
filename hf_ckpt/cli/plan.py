"""``hf-ckpt plan``: what each policy will hold and cost, without a GPU and without weights."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..compat.start_up import import_transformers
from ..policy import parse_policy
from .forecast.files import check_page, check_picture
from .garbage import few_collections
from .native_output import no_native_output
from .progress import progress
from .setup import setup_options
from .subject import Subject, gpu_options, several_sizes, subject_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..planner.memory.setup import Setup

#: What is compared when no policy is named.
USUAL = ("none", "balanced", "attention", "mlp", "norm", "dots_saveable", "every(2)", "budget=0.5", "full")


@click.command("plan")
@subject_options(several=True)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    help=f"A policy to forecast; may be given several times; default: {', '.join(USUAL)}.",
)
@gpu_options
@setup_options
@click.option(
    "--largest",
    type=click.Choice(["batch", "length"]),
    help="Also search the largest batch, or the longest sequence, that each policy allows in the memory.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also draw the first size into this PNG or SVG: the frontier, and memory over a step.",
)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write memory over a step, layer by layer, into this HTML file.",
)
@click.option("--json", "in_json", is_flag=True, help="Write the forecasts as JSON: sizes in bytes, times in seconds.")
@few_collections()
def command(
    subject: Subject,
    batches: tuple[int, ...],
    lengths: tuple[int, ...],
    policies: tuple[str, ...],
    gpu: str | None,
    memory: str | None,
    setup: Callable[[Subject], Setup],
    largest: str | None,
    plot: Path | None,
    html: Path | None,
    in_json: bool,
) -> None:
    """Forecast policies for a model: bytes held, peak, added time.

    Nothing is trained and no weight is loaded: the layers are traced on metadata. Kernels and times are those of the
    card that --gpu names, by its data sheet and published measurements, or of this machine. A multimodal model is
    planned by its language layers. --batch and --length may be given several times. Exit code 1: nothing fits the
    memory; 2: every policy was refused.
    """
    parsed = [parse_policy(text) for text in policies or USUAL]
    check_picture(plot)
    check_page(html)
    with no_native_output(), progress() as say:
        import_transformers()
        # start-up: help and the checks of options need no torch
        from .forecast.forecasts import as_json, forecasts, show, sought_sizes
        from .forecast.pictures import draw_plans, write_page
        from .forecast.rows import exit_code
        from .study import read_model

        model = read_model(subject, memory, setup(subject), gpu)
        if model.setup.in_turn and (plot or html):
            raise click.UsageError("--plot and --html draw one card: leave --device-map out")
        rows = forecasts(model, several_sizes(model.subject, batches, lengths), parsed, say)
        sought = sought_sizes(model, rows, parsed, largest, say)
        if plot is not None:
            say(f"drawing {plot}")
            draw_plans(model.study(rows[0].batch, rows[0].length), parsed, plot)
        if html is not None:
            write_page(model.study(rows[0].batch, rows[0].length), parsed, html)
    if in_json:
        click.echo(json.dumps(as_json(model, rows, largest, sought), indent=2))
    else:
        show(model, rows, largest, sought)
    sys.exit(exit_code(rows))
