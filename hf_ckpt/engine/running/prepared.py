"""A recipe bound to one layer and one set of shapes: everything a call needs that does not change between calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..recipes.recipe import Action

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from ..layer.binding import Binding
    from ..layer.slots import Slot
    from ..recipes.recipe import Recipe, View
    from ..tracing.cache import Signature

#: Entries of ``Prepared.actions`` besides None (keep), a shape (drop), a ParameterView (refer) and an Offload.
SOURCE = "keep, and give to the rebuild"
END = "no more saved tensors"


@dataclass(frozen=True, slots=True)
class Offload:
    """Send the storage of this saved tensor to the host; ``is_source``: the rebuild reads it."""

    buffer: int
    is_source: bool


class ParameterView:
    """A saved view of a parameter: made from whatever stands behind the parameter's attribute when it is needed."""

    __slots__ = ("slot", "symbols", "view")

    def __init__(self, slot: Slot, view: View | None, symbols: tuple[int, ...]) -> None:
        self.slot = slot
        self.view = view
        self.symbols = symbols

    def __call__(self) -> torch.Tensor:
        """The view, made now."""
        parameter = self.slot.fetch()
        return parameter if self.view is None else self.view(parameter, self.symbols)


class Prepared:
    """A recipe bound to one layer and one set of shapes.

    ``parameters`` are those the rebuild reads, ``referred`` also those that autograd saved. ``actions`` say what the
    pack hook does at each position, ``verified`` whether this layer's rebuild was seen to be equal; ``replayed`` is
    called after every rebuild. ``runs_at`` says at which places (packs, or the layer's beginning) the random state is
    taken for which runs of draws, ``generators`` which devices draw at all.
    """

    __slots__ = (
        "actions", "binding", "count", "device_type", "generators", "layer", "parameters", "recipe",
        "referred", "replayed", "runs_at", "shapes", "signature", "sizes", "symbols", "verified",
    )  # fmt: skip

    def __init__(
        self,
        layer: str,
        recipe: Recipe,
        binding: Binding,
        sizes: dict[str, int],
        device_type: str,
        replayed: Callable[[], None],
        signature: Signature,
    ) -> None:
        trace = recipe.trace
        self.layer = layer
        slots = binding.slots
        self.recipe = recipe
        self.binding = binding
        self.sizes = sizes
        self.symbols = tuple(sizes[binding.symbol] for binding in trace.guards.bindings)
        self.parameters = [slots[index] for index in recipe.parameters]
        viewed = {index for index, _ in recipe.views.values()}
        self.referred = [slots[index] for index in sorted(viewed.union(recipe.parameters))]
        self.shapes = recipe.shapes_at(sizes)
        self.runs_at = {run.anchor: self._runs_at(run.anchor) for run in recipe.runs}
        self.generators = tuple(dict.fromkeys(run.device for run in recipe.runs))
        self.actions = [self._action(position, slots) for position in range(len(trace.packs))]
        self.actions.append(END)
        self.count = len(trace.packs)
        self.device_type = device_type
        self.replayed = replayed
        self.signature = signature
        self.verified = False

    def nbytes(self, buffers: frozenset[int]) -> int:
        """Bytes of these buffers at these shapes."""
        return sum(self.recipe.trace.nbytes(buffer, self.sizes) for buffer in buffers)

    def _runs_at(self, anchor: int) -> tuple[tuple[int, torch.device], ...]:
        return tuple((k, run.device) for k, run in enumerate(self.recipe.runs) if run.anchor == anchor)

    def _action(self, position: int, slots: Sequence[Slot]) -> Any:
        match self.recipe.actions[position]:
            case Action.PARAMETER:
                slot, view = self.recipe.views[position]
                return ParameterView(slots[slot], view, self.symbols)
            case Action.REBUILD:
                return self.shapes[position]
            case Action.SOURCE:
                return SOURCE
            case Action.OFFLOAD | Action.OFFLOAD_SOURCE as action:
                buffer = self.recipe.trace.packs[position].buffer
                return Offload(buffer, is_source=action is Action.OFFLOAD_SOURCE)
        return None
