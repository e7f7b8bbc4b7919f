"""The planner's findings as rich tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE
from rich.filesize import decimal
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .findings import FrontierPoint, Gain, LedgerRow, TensorRow


_SHORT = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}


def tensors_table(rows: Sequence[TensorRow], title: str) -> Table:
    """Every saved tensor of the layers: bytes in one layer, what the plan does with it, the price of rebuilding it."""
    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False, padding=0)
    # Cut short, q_proj and k_proj would read the same. The widths add up to 80 columns.
    table.add_column("tensor", overflow="fold")
    table.add_column("made by", overflow="fold", min_width=25)
    table.add_column("bytes", justify="right", min_width=8)
    table.add_column("layers", justify="right", min_width=11, max_width=11)
    table.add_column("ms/GiB", justify="right", min_width=7)
    for found in rows:
        row = found.row
        price = _milliseconds(row.seconds_per_gib, "never")
        table.add_row(_short(row.tensor), _maker(row), decimal(row.nbytes), _verbs(found), price)
    table.add_section()
    table.add_row("all layers", "", decimal(sum(found.total for found in rows if found.row.op)))
    return table


def _short(tensor: str) -> str:
    """``torch.bfloat16[1, 64]`` as ``bf16 1x64``."""
    dtype, _, shape = tensor.removeprefix("torch.").removesuffix("]").partition("[")
    return f"{_SHORT.get(dtype, dtype)} {shape.replace(', ', 'x')}"


def _maker(row: LedgerRow) -> str:
    return f"{row.module} {_packet(row.op)}".strip() or "the layer's input"


def _packet(op: str) -> str:
    """``aten._scaled_dot_product_cudnn_attention.default`` as ``cudnn_attention``."""
    name = op.split(".")[1] if "." in op else op
    return name.removeprefix("_scaled_dot_product_")


def _verbs(found: TensorRow) -> str:
    return ", ".join(f"{verb} {count}" for verb, count in found.verbs.items())


def frontier_table(points: Sequence[FrontierPoint], step_seconds: float | None = None) -> Table:
    """What each budget costs; ``step_seconds`` is the step without checkpointing, for the slowdown."""
    table = Table(
        title="the frontier: the fastest plan at each budget", title_justify="left", box=SIMPLE, pad_edge=False
    )
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
