"""The forecasts of `hf-ckpt plan` as text, at most 80 columns wide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE
from rich.filesize import decimal
from rich.table import Table

from ...measuring.forecast import step_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ...measuring.forecast import ForecastInputs
    from ..study import Model, Study
    from .rows import Row

_HEADINGS = ("held", "of none", "in all", "fits", "peak in", "added ms", "of step")


def size_table(study: Study, rows: Sequence[Row]) -> Table:
    """The policies at one size of batch that have a forecast."""
    table = Table(
        title=str(study.subject),
        title_justify="left",
        caption_justify="left",
        box=SIMPLE,
        pad_edge=False,
        padding=0,
        show_edge=False,
    )
    table.add_column("policy", overflow="fold")
    for heading in _HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        if row.error is None:
            table.add_row(row.policy, *_figures(row))
    table.caption = _caption(study)
    return table


def _figures(row: Row) -> list[str]:
    if row.held_bytes is None or row.total_bytes is None or row.added_seconds is None:
        return [""] * len(_HEADINGS)
    return [
        decimal(row.held_bytes),
        "" if row.share_of_none is None else f"{row.share_of_none:.2f}",
        decimal(row.total_bytes),
        "tight" if row.tight else {True: "yes", False: "no", None: ""}[row.fits],
        row.peak_at or "",
        f"{1000 * row.added_seconds:,.1f}",
        "" if row.added_share is None else f"+{row.added_share:.1%}",
    ]


def _caption(study: Study) -> str:
    inputs = study.inputs
    untraced = sum(ledger is None for ledger in inputs.ledgers)
    seconds = step_seconds(inputs)
    parts = [
        *([] if study.total is None else [f"memory: {decimal(study.total)}"]),
        f"in all: with {_state(inputs)}" if not study.cards else f"in all: on the fullest of {len(study.cards)} cards",
        f"times of {inputs.rates.device}",
        *([] if seconds is None else [f"a step without checkpointing: {1000 * seconds:,.0f} ms by these rates"]),
        *([f"{untraced} layers cannot be traced and are replayed whole"] if untraced else []),
    ]
    return "; ".join(parts)


def _state(inputs: ForecastInputs) -> str:
    weights = f"{decimal(inputs.memory.used)} of weights"
    if inputs.growing is None or not inputs.growing.at_step:
        return f"{weights}, {decimal(inputs.to_come)} of gradients and optimizer"
    gradients = inputs.growing.at_step
    return (
        f"{weights}, {decimal(inputs.to_come)} of optimizer, and the {decimal(gradients)} of gradients as they come up"
    )


def largest_lines(model: Model, dimension: str, sought: Mapping[str, int | None]) -> Iterator[str]:
    """One line a policy: the largest batch, or the longest sequence, that it allows."""
    subject = model.subject
    fixed = f"of {subject.length} tokens" if dimension == "batch" else f"in a batch of {subject.batch}"
    yield f"Largest {dimension} {fixed} in {decimal(model.total or 0)}:"
    for policy, size in sought.items():
        yield f"  {policy}: {'none fits' if size is None else size}"
