"""From what a policy decided and what a step measured to the report."""

from __future__ import annotations

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
    Role,
)
from .meter import OUTSIDE, Meter
from .report import KEEP, PLANNED, LayerReport, Report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..anatomy import Anatomy
    from ..engine import EngineReport
    from ..policy.resolve import ResolvedPolicy
    from ..regions import Region


def make_report(
    resolved: ResolvedPolicy,
    anatomy: Anatomy,
    regions: Sequence[Region],
    meter: Meter | None,
) -> Report:
    """Join what was decided with what was measured.

    Args:
        resolved: The policy and its decisions.
        anatomy: The layers of the model.
        regions: What was put on the layers.
        meter: What was counted; None where nothing is measured.
    """
    engines = {engine.layer: engine for region in regions if (engine := region.engine_report()) is not None}
    held = meter.most.by_layer if meter is not None and meter.forwards else None
    layers = tuple(
        LayerReport(
            name=(name := layer.info.name),
            decision=describe(decision := resolved.layers[name]),
            roles=_roles_of(decision),
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
    chunked = () if held is None or meter is None else meter.chunks_reports
    return Report(str(resolved.policy), kernels, layers, outside, heads, chunked)


def _of_engine(engine: EngineReport | None) -> dict[str, Any]:
    if engine is None:
        return {}
    traced = engine.mode in (Mode.SYMBOLIC, Mode.PER_SHAPE)
    rebuilds = not traced or engine.rebuilt_bytes > 0
    return {"mode": str(engine.mode), "reason": engine.reason, "settled": engine.settled, "rebuilds": rebuilds}


def _roles_of(decision: Decision) -> frozenset[Role]:
    """The roles of the sublayers that it is about; none where it is about the layer, or about ops."""
    parts = decision.parts if isinstance(decision, RecomputeUnion) else (decision,)
    roles = [part.roles for part in parts if isinstance(part, RecomputeSublayers)]
    return frozenset(role for each in roles for role in each) if len(roles) == len(parts) else frozenset()


def describe(decision: Decision) -> str:
    """A decision in a few words."""
    match decision:
        case Keep():
            return KEEP
        case Planned():
            return PLANNED
        case RecomputeLayer(offload):
            return "recompute layer, offload its input" if offload else "recompute layer"
        case RecomputeSublayers(roles):
            return "recompute " + "+".join(sorted(roles))
        case RecomputeExcept(saveable):
            kept = ",".join(saveable.names) if saveable.names else saveable.rule
            return f"recompute, keep {kept}"
        case RecomputeUnion(parts):
            return "; ".join(map(describe, parts))
        case RecomputeSegment(first, last):
            return f"recompute segment {first}-{last}"
