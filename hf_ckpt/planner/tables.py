"""The planner's findings as rich tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.filesize import decimal
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .explain import FrontierPoint, Gain, LedgerRow


def ledger_table(rows: Sequence[LedgerRow], title: str) -> Table:
    """Every saved tensor of a layer: bytes, verb, and the price of rebuilding it."""
    table = Table(title=title, title_justify="left")
    for heading in ("tensor", "module", "op"):
        table.add_column(heading, overflow="fold")  # cut short, q_proj and k_proj would read the same
    for heading in ("bytes", "verb", "rebuild ms", "ms per GiB"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row.tensor,
            row.module,
            row.op.removeprefix("aten.").removesuffix(".default"),
            decimal(row.nbytes),
            row.verb,
            _milliseconds(row.seconds, "never"),
            _milliseconds(row.seconds_per_gib, ""),
        )
    table.add_section()
    table.add_row("all", "", "", decimal(sum(row.nbytes for row in rows)))
    return table


def frontier_table(points: Sequence[FrontierPoint], step_seconds: float | None = None) -> Table:
    """What each budget costs; ``step_seconds`` is the step without checkpointing, for the slowdown."""
    table = Table(title="the frontier: the fastest plan at each budget", title_justify="left")
    for heading in ("held", "share of none", "peak", "added ms a step", "step", "head chunks"):
        if heading != "step" or step_seconds is not None:
            table.add_column(heading, justify="right")
    for point in points:
        predicted = point.solution.predicted
        cells = [decimal(predicted.held), f"{point.share:.2f}", decimal(predicted.peak)]
        cells.append(_milliseconds(predicted.seconds, ""))
        if step_seconds is not None:
            cells.append(f"x{1 + predicted.seconds / step_seconds:.3f}")
        table.add_row(*cells, str(point.solution.head.chunks))
    return table


def gain_line(gain: Gain) -> str:
    """One sentence: what more budget would buy."""
    size = decimal(gain.nbytes)
    if gain.before == 0:
        return "the plan keeps everything: more memory buys nothing"
    share = gain.saved / gain.before
    return f"{size} more would save {1e3 * gain.saved:.3g} ms a step ({share:.0%} of the added time)"


def _milliseconds(seconds: float | None, missing: str) -> str:
    if seconds is None:
        return missing
    milliseconds = 1e3 * seconds
    return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"
