"""``hf-ckpt plan``: what each policy will hold and cost, without a GPU and without weights."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from ..policy import parse_policy
from .forecast.pictures import check_page, check_picture, draw_plans, write_page
from .forecast.tables import largest_lines, size_table
from .progress import progress
from .setup import setup_options
from .subject import Subject, gpu_options, several_sizes, subject_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..planner.memory.setup import Setup
    from ..policy import Policy
    from .forecast.rows import Row
    from .study import Model

#: What is compared when no policy is named.
USUAL = ("none", "balanced", "attention", "mlp", "norm", "dots_saveable", "every(2)", "budget=0.5", "full")
#: Sequences of this many tokens more or less are tried by ``--largest length``, and no longer ones.
LENGTH_STEP, MOST_TOKENS, MOST_SEQUENCES = 128, 1 << 20, 4096


@click.command("plan")
@subject_options(several=True)
@click.option("--policy", "policies", multiple=True, help="A policy to forecast; may be given several times.")
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
@click.option("--json", "as_json", is_flag=True, help="Write the forecasts as JSON: sizes in bytes, times in seconds.")
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
    as_json: bool,
) -> None:
    """Forecast policies for a model: bytes held, peak, added time.

    Nothing is trained and no weight is loaded: the layers are traced on metadata. Kernels and times are those of the
    card that --gpu names, by its data sheet and published measurements, or of this machine. Of a multimodal model these
    are the language layers. --batch and --length may be given several times. Exit code 1: nothing fits the memory; 2:
    every policy was refused.
    """
    parsed = [parse_policy(text) for text in policies or USUAL]
    check_picture(plot)
    check_page(html)
    with progress() as say:
        from .forecast.rows import exit_code
        from .study import read_model

        model = read_model(subject, memory, setup(subject), gpu)
        rows = _forecasts(model, several_sizes(model.subject, batches, lengths), parsed, say)
        sought = _sought(model, rows, parsed, largest, say)
        if plot is not None:
            say(f"drawing {plot}")
            draw_plans(model.study(rows[0].batch, rows[0].length), parsed, plot)
        if html is not None:
            write_page(model.study(rows[0].batch, rows[0].length), parsed, html)
    if as_json:
        click.echo(json.dumps(_as_json(model, rows, largest, sought), indent=2))
    else:
        _show(model, rows, largest, sought)
    sys.exit(exit_code(rows))


def _forecasts(
    model: Model, sizes: Iterable[tuple[int, int]], policies: Sequence[Policy], say: Callable[[str], None]
) -> list[Row]:
    from .forecast.rows import rows_of

    rows = []
    for batch, length in sizes:
        say(f"tracing the layers of {model.subject.model} on {batch} x {length} tokens")
        rows += rows_of(model.study(batch, length), policies)
    return rows


def _sought(
    model: Model, rows: Sequence[Row], policies: Sequence[Policy], dimension: str | None, say: Callable[[str], None]
) -> dict[str, int | None]:
    """The largest size of every policy that is not refused."""
    if dimension is None:
        return {}
    refused = {row.policy for row in rows if row.error is not None and row.fits is None}
    found = {}
    for policy in policies:
        if str(policy) not in refused:
            say(f"searching the largest {dimension} under {policy}")
            found[str(policy)] = _largest(model, policy, dimension)
    return found


def _largest(model: Model, policy: Policy, dimension: str) -> int | None:
    from .forecast.largest import largest
    from .forecast.rows import rows_of

    subject = model.subject

    def fits(size: int) -> bool:
        at = (size, subject.length) if dimension == "batch" else (subject.batch, size)
        (row,) = rows_of(model.study(*at), [policy])
        return row.error is None and row.fits is True

    if model.total is None:
        raise click.BadParameter("it needs a memory to fill: give --memory", param_hint="--largest")
    if dimension == "batch":
        return largest(fits, 1, MOST_SEQUENCES)
    return largest(fits, LENGTH_STEP, min(MOST_TOKENS, model.positions or MOST_TOKENS))


def _show(model: Model, rows: Sequence[Row], dimension: str | None, sought: dict[str, int | None]) -> None:
    console = Console()
    for batch, length in dict.fromkeys((row.batch, row.length) for row in rows):
        here = [row for row in rows if (row.batch, row.length) == (batch, length)]
        console.print(size_table(model.study(batch, length), here))
        for row in here:
            if row.error is not None:
                console.print(f"{row.policy}: {row.error}", markup=False, highlight=False)
    if dimension is not None:
        for line in largest_lines(model, dimension, sought):
            console.print(line, markup=False, highlight=False)
    from .forecast.advice import lines

    for line in lines(model, _first_size(rows)):
        console.print(line, markup=False, highlight=False)


def _first_size(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if (row.batch, row.length) == (rows[0].batch, rows[0].length)]


def _as_json(model: Model, rows: Sequence[Row], dimension: str | None, sought: dict[str, int | None]) -> dict[str, Any]:
    from .forecast.advice import as_json, sharding

    stands = model.standing
    found: dict[str, Any] = {
        "model": model.subject.model,
        "dtype": model.subject.dtype,
        "rates_of": model.rates.device,
        "memory_bytes": model.total,
        "weight_bytes": stands.weights,
        "optimizer_bytes": stands.optimizer,
        "gathered_bytes": stands.gathered,
        "gradient_bytes": stands.gradients,
        "gradient_and_optimizer_bytes": stands.gradients + stands.optimizer + stands.gathered,
        "forecasts": [row.as_json() for row in rows],
        "sharding_more": as_json(sharding(model, _first_size(rows))),
    }
    return found | ({f"largest_{dimension}": sought} if dimension is not None else {})
