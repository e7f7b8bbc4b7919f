"""The report of a policy on a model: plain data, printed as a table, logged as metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..engine import Mode
from ..policy.decision import (
    Decision,
    Keep,
    Planned,
    RecomputeExcept,
    RecomputeLayer,
    RecomputeSegment,
    RecomputeSublayers,
    RecomputeUnion,
)
from .meter import OUTSIDE, Meter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..anatomy import Anatomy
    from ..engine import EngineReport
    from ..head.measured import HeadReport
    from ..policy.resolve import ResolvedPolicy
    from ..regions import Region


_KEEP = "keep"
#: The planner may find that everything fits, so a planned layer need not replay.
_PLANNED = "planned per batch"


@dataclass(frozen=True, slots=True)
class LayerReport:
    """One decoder layer. Bytes are those its saved tensors hold after forward; None when no step was measured."""

    name: str
    decision: str
    held_bytes: int | None
    calls: int
    replays: int
    #: How it is recomputed ("traced symbolic", "traced per shape", "whole-layer replay"), and why when whole.
    mode: str = ""
    reason: str = ""
    #: Whether its forward ran in the measured step (layer drop, a tower without input); True when none was measured.
    ran: bool = True
    #: Whether a replay is due: False while its first rebuild is being compared, and where there is nothing to rebuild.
    settled: bool = True
    rebuilds: bool = True

    @property
    def recomputes(self) -> bool:
        """Whether the policy asked for a recompute here."""
        return self.decision not in (_KEEP, _PLANNED)


@dataclass(frozen=True, slots=True)
class Report:
    """A policy on a model. ``outside_bytes`` are held outside every layer: embeddings, head, the model's own loss.

    What a loss outside the model's forward saves (label smoothing, a ``compute_loss`` of one's own) is not counted.
    ``heads`` are the loss heads that should have run in chunks in the measured step.
    """

    policy: str
    kernels: tuple[str, ...]
    layers: tuple[LayerReport, ...]
    outside_bytes: int | None
    heads: tuple[HeadReport, ...] = ()

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
        from .table import as_text

        return as_text(self)


def make_report(
    resolved: ResolvedPolicy,
    anatomy: Anatomy,
    regions: Sequence[Region],
    meter: Meter | None,
) -> Report:
    """Join what was decided with what was measured."""
    engines = {engine.layer: engine for region in regions if (engine := region.engine_report()) is not None}
    held = meter.most.by_layer if meter is not None and meter.forwards else None
    layers = tuple(
        LayerReport(
            name=(name := layer.info.name),
            decision=describe(resolved.layers[name]),
            held_bytes=None if held is None else held.get(name, 0),
            calls=meter.calls.get(name, 0) if meter is not None else 0,
            replays=meter.replays.get(name, 0) if meter is not None else 0,
            ran=held is None or meter is None or name in meter.ran,
            **_of_engine(engines.get(name)),
        )
        for layer in anatomy.layers
    )
    kernels = tuple(dict.fromkeys(stack.kernel for stack in anatomy.stacks))
    outside = None if held is None else held.get(OUTSIDE, 0)
    heads = () if held is None or meter is None else meter.head_reports
    return Report(str(resolved.policy), kernels, layers, outside, heads)


def _of_engine(engine: EngineReport | None) -> dict[str, Any]:
    if engine is None:
        return {}
    traced = engine.mode in (Mode.SYMBOLIC, Mode.PER_SHAPE)
    rebuilds = not traced or engine.rebuilt_bytes > 0
    return {"mode": str(engine.mode), "reason": engine.reason, "settled": engine.settled, "rebuilds": rebuilds}


def describe(decision: Decision) -> str:
    """A decision in a few words."""
    match decision:
        case Keep():
            return _KEEP
        case Planned():
            return _PLANNED
        case RecomputeLayer():
            return "recompute layer"
        case RecomputeSublayers(roles):
            return "recompute " + "+".join(sorted(roles))
        case RecomputeExcept(saveable):
            kept = ",".join(saveable.names) if saveable.names else saveable.rule
            return f"recompute, keep {kept}"
        case RecomputeUnion(parts):
            return "; ".join(map(describe, parts))
        case RecomputeSegment(first, last):
            return f"recompute segment {first}-{last}"


def to_metrics(report: Report) -> dict[str, Any]:
    """The numbers a logger shows, bytes as integers."""
    metrics: dict[str, Any] = {"ckpt/recomputed_share": report.recomputed_share}
    if report.held_bytes is not None:
        metrics["ckpt/held_bytes"] = report.held_bytes
    return metrics
