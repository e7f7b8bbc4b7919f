"""``hf-ckpt bench``: measure policies against no checkpointing on this machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.filesize import decimal
from rich.progress import Progress
from rich.table import Table

from ..policy import parse_policy
from ..policy.platform import Engine
from .native_output import no_native_output
from .subject import Subject, subject_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..measuring.bench import PolicyTiming


@click.command("bench")
@subject_options()
@click.option(
    "--policy",
    "policies",
    multiple=True,
    default=("full", "balanced", "budget=0.5"),
    show_default=True,
    help="A policy to measure; may be given several times.",
)
@click.option(
    "--engine",
    type=click.Choice([str(engine) for engine in Engine]),
    default="traced",
    show_default=True,
    help="What recomputes.",
)
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True, help="Steps of every policy.")
@click.option("--json", "in_json", is_flag=True, help="Write the figures as JSON: sizes in bytes, times as ratios.")
def command(subject: Subject, policies: tuple[str, ...], engine: str, rounds: int, in_json: bool) -> None:
    """Measure step time and memory of policies, in alternating steps.

    Every policy is compared with `none`: step time, bytes held after forward, bytes at the peak. Times are ratios to
    `none` within the same round, medians over the rounds; memory is counted from storages on CPU and by the allocator
    on CUDA.
    """
    parsed = [parse_policy(text) for text in policies]

    # start-up: help and the checks of options need no torch
    import torch

    from ..measuring.bench import bench
    from .model import build_model, check_runs, token_ids
    from .positions import fit_length

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = build_model(subject, device)
    subject = fit_length(subject, model)
    ids = token_ids(subject, model, device)
    check_runs(model, ids, subject)
    with no_native_output(), Progress(transient=True, console=Console(stderr=True)) as progress:
        task = progress.add_task("rounds", total=rounds)
        timings = bench(
            model,
            ids,
            parsed,
            rounds=rounds,
            engine=engine,
            tick=lambda: progress.advance(task),
        )
    if in_json:
        click.echo(json.dumps(_as_plain(subject, engine, rounds, device.type, timings), indent=2))
    else:
        Console().print(_table(subject, timings))


def _as_plain(
    subject: Subject, engine: str, rounds: int, device: str, timings: Sequence[PolicyTiming]
) -> dict[str, object]:
    said = {"model": subject.model, "dtype": subject.dtype, "batch": subject.batch, "length": subject.length}
    return said | {
        "device": device,
        "engine": engine,
        "rounds": rounds,
        "policies": [asdict(timing) for timing in timings],
    }


def _table(subject: Subject, timings: Sequence[PolicyTiming]) -> Table:
    table = Table(title=str(subject), title_justify="left")
    table.add_column("policy")
    for heading in ("held after forward", "of none", "peak of a step", "of none", "step time of none"):
        table.add_column(heading, justify="right")
    base = timings[0]
    for timing in timings:
        table.add_row(
            timing.policy,
            decimal(timing.held_bytes),
            f"{timing.held_bytes / base.held_bytes:.2f}",
            decimal(timing.peak_bytes),
            f"{timing.peak_bytes / base.peak_bytes:.2f}",
            f"{timing.ratio:.3f}",
        )
    return table
