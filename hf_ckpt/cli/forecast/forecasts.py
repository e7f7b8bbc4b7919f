"""Policies at several sizes of batch: forecast, searched for the largest size, and shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from . import advice
from .largest import largest
from .rows import rows_of
from .tables import largest_lines, size_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ...policy import Policy
    from ..study import Model
    from .rows import Row

#: Sequences of this many tokens more or less are tried by ``--largest length``, and no longer ones.
LENGTH_STEP, MOST_TOKENS, MOST_SEQUENCES = 128, 1 << 20, 4096


def forecasts(
    model: Model, sizes: Iterable[tuple[int, int]], policies: Sequence[Policy], say: Callable[[str], None]
) -> list[Row]:
    """Every policy at every size, as (sequences, tokens in each)."""
    rows = []
    for batch, length in sizes:
        say(f"tracing the layers of {model.subject.model} on {batch} x {length} tokens")
        rows += rows_of(model.study(batch, length), policies)
    return rows


def sought_sizes(
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


def show(model: Model, rows: Sequence[Row], dimension: str | None, sought: dict[str, int | None]) -> None:
    """Print a table for each size with what was refused and what to do, and the largest sizes."""
    console = Console()
    for batch, length in dict.fromkeys((row.batch, row.length) for row in rows):
        here = [row for row in rows if (row.batch, row.length) == (batch, length)]
        console.print(size_table(model.study(batch, length), here))
        for row in here:
            if row.error is not None:
                console.print(f"{row.policy}: {row.error}", markup=False, highlight=False)
        for line in advice.lines(model, here):
            console.print(line, markup=False, highlight=False)
    if dimension is not None:
        for line in largest_lines(model, dimension, sought):
            console.print(line, markup=False, highlight=False)


def _first_size(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if (row.batch, row.length) == (rows[0].batch, rows[0].length)]


def as_json(model: Model, rows: Sequence[Row], dimension: str | None, sought: dict[str, int | None]) -> dict[str, Any]:
    """The forecasts as JSON: sizes in bytes, times in seconds."""
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
        "sharding_more": advice.as_json(advice.sharding(model, _first_size(rows))),
    }
    return found | ({f"largest_{dimension}": sought} if dimension is not None else {})
