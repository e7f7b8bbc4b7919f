"""A report as a rich table; equal neighbouring layers share a row."""

from __future__ import annotations

from io import StringIO
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

if TYPE_CHECKING:
    from ..head.measured import HeadReport
    from .report import LayerReport, Report


def as_table(report: Report) -> Table:
    """The report as a renderable."""
    table = Table(title=f"policy {report.policy}, attention kernel {', '.join(report.kernels)}", title_justify="left")
    for heading in ("layers", "decision", "engine", "held after forward", "replays"):
        table.add_column(heading, justify="right" if heading in ("held after forward", "replays") else "left")
    for _, group in groupby(report.layers, key=_row_key):
        layers = list(group)
        row = layers[0]
        table.add_row(_names(layers), row.decision, row.mode, _bytes(row, len(layers)), str(row.replays))
    if report.outside_bytes is not None and report.held_bytes is not None:
        table.add_row("outside the layers", "", "", decimal(report.outside_bytes), "")
        table.add_section()
        table.add_row("all", "", "", decimal(report.held_bytes), "")
    table.caption = _caption(report)
    return table


def _caption(report: Report) -> str | None:
    untraced: dict[str, dict[str, None]] = {}
    for layer in report.layers:
        if layer.reason:
            untraced.setdefault(layer.mode, {})[layer.reason] = None
    lines = [f"{mode}, because " + "; ".join(reasons) for mode, reasons in untraced.items()]
    absent = dict.fromkeys(layer.name for layer in report.layers if not layer.ran)
    lines += ["did not run in the measured step: " + ", ".join(absent)] if absent else []
    lines += [line for head in report.heads if (line := head_line(head))]
    return "\n".join(lines) or None


def head_line(head: HeadReport) -> str:
    """One sentence about a loss head that did not run in chunks; empty when it did."""
    name = f"head({head.chunks})" + ("" if head.asked else ", chosen by the planner,")
    if head.left_alone:
        return f"{name} leaves the head alone: {head.left_alone}"
    return f"{name} had no effect: {head.problem}" if head.problem else ""


def as_text(report: Report) -> str:
    """The table as plain text, 100 columns wide."""
    console = Console(file=StringIO(), width=100)
    console.print(as_table(report))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def _row_key(layer: LayerReport) -> tuple[str, str, str, int | None, int]:
    return layer.name.rpartition(".")[0], layer.decision, layer.mode, layer.held_bytes, layer.replays


def _names(layers: list[LayerReport]) -> str:
    first, last = layers[0].name, layers[-1].name.rpartition(".")[2]
    return first if len(layers) == 1 else f"{first} .. {last}"


def _bytes(layer: LayerReport, count: int) -> str:
    if layer.held_bytes is None:
        return "not measured"
    return decimal(layer.held_bytes) if count == 1 else f"{count} x {decimal(layer.held_bytes)}"
