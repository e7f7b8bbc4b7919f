"""Turns decisions into regions on real modules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch.utils.checkpoint import noop_context_fn

from ._undo import AttributeChange, Change
from .compat.checkpointing import (
    LoweredFlags,
    other_switches,
    run_plainly,
    set_checkpointing,
    supports_checkpointing,
)
from .engine.notices import Notices
from .policy.decision import (
    Decision,
    Keep,
    Planned,
    RecomputeExcept,
    RecomputeLayer,
    RecomputeSegment,
    RecomputeSublayers,
    RecomputeUnion,
    SaveableOps,
)
from .policy.platform import Engine
from .regions import (
    ForwardRegion,
    LayerRegion,
    Region,
    SaveableContexts,
    SegmentRegion,
    TracedForwardRegion,
    TracedRegion,
)
from .regions.segment import OpenSegment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import nn

    from .anatomy import Anatomy, DecoderLayer


@dataclass(slots=True)
class Installation:
    """What was put on a model: its regions, the changes that undo it, and the transformers switches it uses."""

    regions: list[Region] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    switches: list[tuple[nn.Module, Any]] = field(default_factory=list)
    #: Layers whose saved tensors the planner decides about.
    planned: list[tuple[nn.Module, TracedRegion]] = field(default_factory=list)
    #: What the engine says of all layers together.
    notices: Notices = field(default_factory=Notices)


def install(
    model: nn.Module, anatomy: Anatomy, decisions: Mapping[str, Decision], engine: Engine, *, into: Installation
) -> None:
    """Install every decision of a resolved policy; nothing else on the model changes.

    Args:
        model: The model, changed in place.
        anatomy: Its layers.
        decisions: What to do, by the name of the layer.
        engine: Who recomputes: traced replay or torch.
        into: Gets what is put on, at every moment, so that whatever ends this early can be followed by an undo.
    """
    for layer in anatomy.layers:
        decision = decisions[layer.info.name]
        if _is_traced(layer, decision, engine):
            _trace(layer, decision, into)
        else:
            _install_layer(layer, decision, into)
    opened = OpenSegment()
    for members in _segments(anatomy, decisions):
        _install_segment(model, members, opened, into)
    _flag_others(model, anatomy, recomputes=bool(into.regions), into=into)


def _is_traced(layer: DecoderLayer, decision: Decision, engine: Engine) -> bool:
    return engine is Engine.TRACED and not isinstance(decision, Keep | RecomputeSegment)


def _rules(decision: Decision) -> tuple[SaveableOps, ...]:
    """The rules about op outputs in a decision."""
    parts = decision.parts if isinstance(decision, RecomputeUnion) else (decision,)
    return tuple(part.saveable for part in parts if isinstance(part, RecomputeExcept))


def _flag_others(model: nn.Module, anatomy: Anatomy, *, recomputes: bool, into: Installation) -> None:
    """Let the flags around the layers and inside them say whether something is recomputed, and do nothing else."""
    others = tuple(other_switches(model, [layer.module for layer in anatomy.layers]))
    for module in others:
        function = run_plainly if recomputes else None
        into.switches.append((module, function))
        into.changes.extend(set_checkpointing(module, True, function))
    if recomputes:
        firsts = [next(iter(anatomy.layers_of(stack))).module for stack in anatomy.stacks]
        flags = LoweredFlags(_around(model, *firsts), others)
        into.changes.append(flags)
        flags.install()


def _install_layer(layer: DecoderLayer, decision: Decision, into: Installation) -> None:
    match decision:
        case Keep():
            _switch(layer, None, into)
        case RecomputeSegment():
            _switch(layer, run_plainly, into)
        case RecomputeLayer() | Planned():
            _whole(layer, noop_context_fn, into)
        case RecomputeExcept() | RecomputeUnion():
            _whole(layer, SaveableContexts(*_rules(decision)), into)
        case RecomputeSublayers(roles):
            _switch(layer, run_plainly, into)
            names = {name for role in roles for name in layer.info.sublayers.get(role, ())}
            for name in _outermost(names):
                _replace_forward(layer, layer.module.get_submodule(name), noop_context_fn, into)


def _trace(layer: DecoderLayer, decision: Decision, into: Installation) -> None:
    # Until the planner has seen a batch, its layers rebuild everything.
    plan = RecomputeLayer() if isinstance(decision, Planned) else decision
    region = _traced_region(layer, plan, into)
    region.replay.notices = into.notices
    into.regions.append(region)
    if isinstance(decision, Planned):
        into.planned.append((layer.module, region))


def _traced_region(layer: DecoderLayer, plan: Any, into: Installation) -> TracedRegion:
    name, module, sublayers = layer.info.name, layer.module, layer.info.sublayers
    if supports_checkpointing(module):
        switched = TracedRegion(name, plan, sublayers)
        _switch(layer, switched, into)
        return switched
    region = TracedForwardRegion(name, plan, sublayers, module)
    into.changes.append(AttributeChange(module, "forward", region.forward))
    return region


def _whole(layer: DecoderLayer, context_fn: Any, into: Installation) -> None:
    if not supports_checkpointing(layer.module):
        _replace_forward(layer, layer.module, context_fn, into)
        return
    region = LayerRegion(layer.info.name, layer.module, context_fn)
    into.regions.append(region)
    _switch(layer, region, into)


def _switch(layer: DecoderLayer, function: Any, into: Installation) -> None:
    if supports_checkpointing(layer.module):
        into.switches.append((layer.module, function))
        into.changes.extend(set_checkpointing(layer.module, True, function))


def _replace_forward(layer: DecoderLayer, module: nn.Module, context_fn: Any, into: Installation) -> None:
    region = ForwardRegion(layer.info.name, module, context_fn)
    into.regions.append(region)
    into.changes.append(AttributeChange(module, "forward", region))


def _outermost(names: Iterable[str]) -> list[str]:
    """Without modules inside another chosen one (``q_norm`` inside attention): those are recomputed with it."""
    chosen = sorted(names)
    return [n for n in chosen if not any(n.startswith(f"{other}.") for other in chosen)]


def _segments(anatomy: Anatomy, decisions: Mapping[str, Decision]) -> Iterable[list[DecoderLayer]]:
    """The runs of consecutive layers that share a segment; ``@`` may have cut one short."""
    for stack in anatomy.stacks:
        run: list[DecoderLayer] = []
        for layer in anatomy.layers_of(stack):
            decision = decisions[layer.info.name]
            if run and decisions[run[-1].info.name] != decision:
                yield run
                run = []
            if isinstance(decision, RecomputeSegment):
                run.append(layer)
        if run:
            yield run


def _install_segment(model: nn.Module, members: list[DecoderLayer], opened: OpenSegment, into: Installation) -> None:
    names, modules = tuple(m.info.name for m in members), tuple(m.module for m in members)
    region = SegmentRegion(names, modules, _around(model, modules[0]), opened)
    into.regions.append(region)
    into.changes.append(_SegmentRemoval(region))
    region.install()


def _around(model: nn.Module, *layers: nn.Module) -> tuple[nn.Module, ...]:
    """The modules that hold one of these layers, the whole model first: the forward of one of them calls it."""
    return tuple(m for m in model.modules() if any(m is not layer and _holds(m, layer) for layer in layers))


def _holds(module: nn.Module, layer: nn.Module) -> bool:
    return any(child is layer for child in module.modules())


@dataclass(frozen=True, slots=True)
class _SegmentRemoval:
    region: SegmentRegion

    def undo(self) -> None:
        self.region.remove()
