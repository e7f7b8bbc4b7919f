"""The report of a policy on a model: plain data, printed as a table, logged as metrics."""

from __future__ import annotations

from dataclasses import dataclass
from io import StringIO
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

if TYPE_CHECKING:
    from ..chunks.measured import ChunksReport
    from ..head.measured import HeadReport
    from ..policy.decision import Role

#: What a report says of a layer that keeps everything.
KEEP = "keep"
#: The planner may find that everything fits, so a planned layer need not replay.
PLANNED = "planned per batch"


@dataclass(frozen=True, slots=True)
class LayerReport:
    """One decoder layer.

    Attributes:
        name: Its name in the model.
        decision: What the policy decided for it, in words.
        held_bytes: Bytes that its saved tensors hold after forward; None when no step was measured.
        calls: Forwards in the measured steps.
        replays: Backwards that recomputed something of it.
        mode: How it is recomputed, such as ``traced symbolic`` or ``whole-layer replay``.
        reason: Why it is recomputed whole, where it is.
        ran: Whether its forward ran in the measured step; True when none was measured.
        settled: False while its first rebuild is being compared, for which it keeps everything.
        rebuilds: Whether it drops anything that backward rebuilds.
        roles: Of what sublayers it drops something; empty where that is no matter of sublayers.
    """

    name: str
    decision: str
    held_bytes: int | None
    calls: int
    replays: int
    mode: str = ""
    reason: str = ""
    #: False for layer drop, and for a tower without input.
    ran: bool = True
    settled: bool = True
    rebuilds: bool = True
    roles: frozenset[Role] = frozenset()

    @property
    def recomputes(self) -> bool:
        """Whether the policy asked for a recompute here."""
        return self.decision not in (KEEP, PLANNED)


@dataclass(frozen=True, slots=True)
class Report:
    """A policy on a model: what it decided and, after a measured step, what it did.

    Attributes:
        policy: The policy string.
        kernels: The attention kernels of the model's stacks.
        layers: The decoder layers, in the order of the model.
        outside_bytes: Bytes held outside every layer (embeddings, head, loss), a loss outside the model's forward
            included (label smoothing, a ``compute_loss`` of one's own); None when no step was measured.
        heads: The loss heads that should have run in chunks in the measured step.
        chunked: The parts of layers that should have.
    """

    policy: str
    kernels: tuple[str, ...]
    layers: tuple[LayerReport, ...]
    outside_bytes: int | None
    heads: tuple[HeadReport, ...] = ()
    chunked: tuple[ChunksReport, ...] = ()

    @property
    def measured(self) -> bool:
        """Whether a step was measured."""
        return self.outside_bytes is not None

    @property
    def held_bytes(self) -> int | None:
        """Bytes that autograd holds before backward, of all forwards that wait for it; parameters not counted."""
        if self.outside_bytes is None:
            return None
        return self.outside_bytes + sum(layer.held_bytes or 0 for layer in self.layers)

    @property
    def recomputed_share(self) -> float:
        """Share of the layers' forwards that were replayed, or of which something was."""
        shares = (min(1.0, layer.replays / layer.calls) for layer in self.layers if layer.calls)
        return sum(shares) / len(self.layers)

    def __str__(self) -> str:
        return as_text(self)


def to_metrics(report: Report) -> dict[str, Any]:
    """The numbers a logger shows, bytes as integers."""
    metrics: dict[str, Any] = {"ckpt/recomputed_share": report.recomputed_share}
    if report.held_bytes is not None:
        metrics["ckpt/held_bytes"] = report.held_bytes
    return metrics


def as_table(report: Report) -> Table:
    """The report as a renderable; equal neighbouring layers share a row."""
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
    lines += map(chunks_line, report.chunked)
    return "\n".join(lines) or None


def head_line(head: HeadReport) -> str:
    """One sentence about a loss head that did not run in chunks; empty when it did."""
    name = f"head({head.chunks})" + ("" if head.asked else ", chosen by the planner,")
    if head.left_alone:
        return f"{name} leaves the head alone: {head.left_alone}"
    return f"{name} had no effect: {head.problem}" if head.problem else ""


def chunks_line(parts: ChunksReport) -> str:
    """One sentence about parts of layers that ran in chunks, and about those that did not."""
    why = f" ({parts.reason})" if parts.reason else ""
    return f"{parts.role}({parts.chunks}): {parts.ran_in_chunks} of {parts.parts} {parts.called} ran in chunks{why}"


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
