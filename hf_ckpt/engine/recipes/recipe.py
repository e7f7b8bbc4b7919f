"""What to do with each pack of a trace under one selection, compiled once and shared by all layers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

import torch

from ..tracing.ledgers import ledger_at
from ..tracing.symbols import evaluate
from ..verbs.redraw import draw_runs
from .codegen import Writer
from .plans import select
from .slicing import slice_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from ...policy.decision import Role
    from ..tracing.ir import Trace
    from ..verbs.redraw import DrawRun
    from .codegen import Rebuild
    from .plans import Plan, Selection

    #: Makes a saved view of a parameter from the parameter and the values of the symbols.
    View: TypeAlias = Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor]

_MAX_SHAPES = 1024
_MAX_RECIPES = 256


class Action(IntEnum):
    """What the pack hook does at one position."""

    KEEP = 0
    SOURCE = 1  # kept, and read by the rebuild
    REBUILD = 2
    PARAMETER = 3
    OFFLOAD = 4
    OFFLOAD_SOURCE = 5


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """A trace under one selection.

    ``rebuild`` makes the dropped packs; ``inputs`` and ``parameters`` are what it reads. ``views`` makes a saved view
    of a parameter from that parameter: position -> (slot, function, or None for the parameter itself). ``kept`` are the
    buffers held after forward. ``runs`` are the draws that the rebuild repeats. ``proven`` are the ints among the
    arguments with which some layer's rebuild was equal.
    """

    trace: Trace
    actions: tuple[Action, ...]
    rebuild: Rebuild
    rebuilt: tuple[int, ...]
    inputs: tuple[int, ...]
    parameters: tuple[int, ...]
    views: Mapping[int, tuple[int, View | None]]
    kept: frozenset[int]
    dropped: frozenset[int]
    offloaded: frozenset[int]
    runs: tuple[DrawRun, ...]
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
    """The recipe of ``trace`` under ``plan``, made at its first use. What is kept does not depend on ``sizes``."""
    key = plan, tuple(sorted(sublayers.items()))
    known: Recipe | None = trace.recipes.get(key)
    if known is None:
        if len(trace.recipes) >= _MAX_RECIPES:
            trace.recipes.clear()
        selection = select(plan, ledger_at(trace, sizes), sublayers)
        known = trace.recipes[key] = make_recipe(trace, selection)
    return known


def make_recipe(trace: Trace, selection: Selection) -> Recipe:
    """What ``selection`` means at each position of ``trace``, and the function that rebuilds what it drops."""
    first = {pack.buffer: pack.position for pack in reversed(trace.packs)}
    made = [pack for pack in trace.packs if trace.buffers[pack.buffer].origin.kind == "op"]
    rebuilt = tuple(pack.position for pack in made if pack.buffer not in selection.held)
    piece = slice_for(trace, rebuilt, selection.held)
    sources = {first[buffer] for buffer in piece.sources}
    rebuild = Writer(trace, piece, first).compile()
    actions = tuple(_action(trace, position, selection, sources) for position in range(len(trace.packs)))
    return Recipe(
        trace=trace,
        actions=actions,
        rebuild=rebuild,
        rebuilt=rebuilt,
        inputs=piece.inputs,
        parameters=piece.parameters,
        views={p: _view(trace, p) for p, action in enumerate(actions) if action is Action.PARAMETER},
        kept=selection.kept,
        dropped=frozenset(trace.packs[position].buffer for position in rebuilt),
        offloaded=selection.offloaded,
        runs=draw_runs(trace, set(piece.ops)),
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


def _action(trace: Trace, position: int, selection: Selection, sources: set[int]) -> Action:
    buffer = trace.packs[position].buffer
    kind = trace.buffers[buffer].origin.kind
    if kind == "parameter":
        return Action.PARAMETER
    if kind != "op" or buffer in selection.kept:
        return Action.SOURCE if position in sources else Action.KEEP
    if buffer in selection.offloaded:
        return Action.OFFLOAD_SOURCE if position in sources else Action.OFFLOAD
    return Action.REBUILD
