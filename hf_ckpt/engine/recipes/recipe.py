"""What to do with each pack of a trace under one assignment, compiled once and shared by all layers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from ...assignment import KEEP, REBUILD
from ..tracing.ledgers import ledger_at
from ..tracing.symbols import evaluate
from ..verb import readable_buffers
from .codegen import Writer
from .draws import draw_runs
from .plans import select
from .slicing import slice_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from ...assignment import Assignment
    from ...policy.decision import Role
    from ..tracing.ir import Trace
    from .codegen import Rebuild
    from .draws import DrawRun
    from .plans import Plan

    #: Makes a saved view of a parameter from the parameter and the values of the symbols.
    View: TypeAlias = Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor]

_MAX_SHAPES = 1024
_MAX_RECIPES = 256


@dataclass(frozen=True, slots=True)
class Action:
    """What happens to one pack: the verb, and whether the rebuild reads it. A view of a parameter has no verb."""

    verb: str | None
    is_source: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """A trace under one assignment.

    ``stored_inputs`` are the places in ``inputs`` of those that a verb stores until backward: place -> buffer.
    ``rebuild`` makes the dropped packs, and ``writer`` has a way to make them one by one; ``inputs`` and ``parameters``
    are what they read. ``views`` makes a saved view of a parameter from that parameter: position -> (slot, function, or
    None for the parameter itself). ``assignment`` has the buffers that are stored, by verb; ``dropped`` are the others.
    ``runs`` are the draws that the rebuild repeats. ``proven`` are the ints among the arguments with which some layer's
    rebuild was equal.
    """

    trace: Trace
    actions: tuple[Action, ...]
    rebuild: Rebuild
    writer: Writer
    rebuilt: tuple[int, ...]
    inputs: tuple[int, ...]
    parameters: tuple[int, ...]
    views: Mapping[int, tuple[int, View | None]]
    assignment: Assignment[int]
    dropped: frozenset[int]
    runs: tuple[DrawRun, ...]
    stored_inputs: Mapping[int, int]
    proven: set[tuple[int, ...]] = field(default_factory=set)
    _shapes: dict[tuple[int, ...], list[tuple[int, ...]]] = field(default_factory=dict)

    def shapes_at(self, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
        """The shape of every pack at these symbol values."""
        key = tuple(sizes.values())
        known = self._shapes.get(key)
        if known is None:
            values = (self.trace.values[pack.value] for pack in self.trace.packs)
            known = [tuple(evaluate(size, sizes) for size in value.shape) for value in values]
            if len(self._shapes) >= _MAX_SHAPES:
                self._shapes.clear()
            self._shapes[key] = known
        return known


def recipe_for(
    trace: Trace,
    plan: Plan,
    sublayers: Mapping[Role, tuple[str, ...]],
    sizes: Mapping[str, int],
) -> Recipe:
    """The recipe of ``trace`` under ``plan``, made at its first use.

    Args:
        trace: What the layer does.
        plan: What to keep, rebuild and offload. What it keeps does not depend on `sizes`.
        sublayers: Module names by role, relative to the layer.
        sizes: Value of each symbol of the trace.
    """
    key = plan, tuple(sorted(sublayers.items()))
    known: Recipe | None = trace.recipes.get(key)
    if known is None:
        if len(trace.recipes) >= _MAX_RECIPES:
            trace.recipes.clear()
        assignment = select(plan, ledger_at(trace, sizes), sublayers)
        known = trace.recipes[key] = make_recipe(trace, assignment)
    return known


def make_recipe(trace: Trace, assignment: Assignment[int]) -> Recipe:
    """What ``assignment`` means at each position of ``trace``, and the function that rebuilds what it drops."""
    first = {pack.buffer: pack.position for pack in reversed(trace.packs)}
    made = [pack for pack in trace.packs if trace.buffers[pack.buffer].origin.kind == "op"]
    rebuilt = tuple(pack.position for pack in made if pack.buffer not in assignment.held)
    movable = (b for b in assignment.held if trace.buffers[b].origin.kind in ("op", "input"))
    assignment = assignment.among(movable)
    own = {b: trace.buffers[b].origin.index for b in assignment.held if trace.buffers[b].origin.kind == "input"}
    piece = slice_for(trace, rebuilt, readable_buffers(assignment) - own.keys())
    sources = {first[buffer] for buffer in piece.sources}
    writer = Writer(trace, piece, first)
    actions = tuple(_action(trace, position, assignment, position in sources) for position in range(len(trace.packs)))
    stored_inputs = {piece.inputs.index(origin): b for b, origin in own.items() if origin in piece.inputs}
    needed = frozenset(first).union(stored_inputs.values())
    return Recipe(
        trace=trace,
        actions=actions,
        rebuild=writer.compile(),
        writer=writer,
        rebuilt=rebuilt,
        inputs=piece.inputs,
        parameters=piece.parameters,
        views={p: _view(trace, p) for p, action in enumerate(actions) if action.verb is None},
        assignment=assignment.among(needed),
        dropped=frozenset(trace.packs[position].buffer for position in rebuilt),
        runs=draw_runs(trace, set(piece.ops)),
        stored_inputs=stored_inputs,
    )


def _view(trace: Trace, position: int) -> tuple[int, View | None]:
    pack = trace.packs[position]
    buffer = trace.buffers[pack.buffer]
    slot = buffer.origin.index
    if pack.value == buffer.base:
        return slot, None
    producer = trace.values[pack.value].producer
    if producer is not None and trace.ops[producer].target is torch.ops.aten.t.default:
        (read,) = trace.ops[producer].args
        if read.value == buffer.base:
            return slot, lambda parameter, symbols: parameter.t()
    rebuild = Writer(trace, slice_for(trace, (position,), frozenset()), {}).compile()
    return slot, lambda parameter, symbols: rebuild((parameter,), (), (), (), symbols, ())[0]


def _action(trace: Trace, position: int, assignment: Assignment[int], is_source: bool) -> Action:
    buffer = trace.packs[position].buffer
    match trace.buffers[buffer].origin.kind:
        case "parameter":
            return Action(None)
        case "op":
            return Action(assignment.verb_of(buffer) or REBUILD, is_source)
    return Action(assignment.verb_of(buffer) or KEEP, is_source)
