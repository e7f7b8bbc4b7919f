"""A recipe bound to one layer and one set of shapes: everything a call needs that does not change between calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...assignment import KEEP
from ..tracing.symbols import evaluate
from ..verb import Place, packing_verb, verbs
from .stored_inputs import if_whole, stay, unless_full

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    import torch

    from ..layer.binding import Binding
    from ..layer.slots import Slot
    from ..recipes.plans import Plan
    from ..recipes.recipe import Recipe, View
    from ..tracing.cache import Signature
    from ..verb import Pack

_MAX_PLANS = 256
#: No rebuild reads what is saved there.
_AFTER_A_CHECK = Place(-1, (), is_source=False)


class ParameterView:
    """A saved view of a parameter: made from whatever stands behind the parameter's attribute when it is needed.

    It is its own handle.
    """

    __slots__ = ("slot", "symbols", "view")

    def __init__(self, slot: Slot, view: View | None, symbols: tuple[int, ...]) -> None:
        self.slot = slot
        self.view = view
        self.symbols = symbols

    def __call__(self) -> torch.Tensor:
        """The view, made now."""
        parameter = self.slot.fetch()
        return parameter if self.view is None else self.view(parameter, self.symbols)

    def pack(self, frame: Any, tensor: torch.Tensor) -> ParameterView:
        """Hold nothing."""
        return self


def one_too_many(frame: Any, tensor: torch.Tensor) -> Any:
    """The last packer: there are no more saved tensors in the trace."""
    raise RuntimeError(frame.differs("it saves more tensors"))


def after_a_check(frame: Any, tensor: torch.Tensor) -> Any:
    """Hold what a layer saves after its last check, if it saves anything there."""
    return packing_verb(KEEP).packer(_AFTER_A_CHECK)(frame, tensor)


class Prepared:
    """A recipe bound to one layer and one set of shapes.

    ``parameters`` are those the rebuild reads, ``referred`` also those that autograd saved. ``views`` has the saved
    views of parameters by position; ``packers`` pack the tensor at each position, ``input_packers`` the inputs at their
    places among those of the rebuild, and ``around`` is what the recipe's
    verbs need around that. ``verified`` says whether this layer's rebuild was seen to be equal; ``replayed`` is called
    after every rebuild. ``runs_at`` says at which places (packs, or the layer's beginning) the random state is taken
    for which runs of draws, ``generators`` which devices draw at all. ``count`` tensors are saved, and after them one
    of ``endings`` or nothing; ``shares`` says which share memory with the one before. ``known`` is where it is found
    again.
    """

    __slots__ = (
        "around", "count", "device_type", "endings", "generators", "input_packers", "known", "layer", "packers",
        "parameters", "recipe", "referred", "replayed", "runs_at", "shapes", "shares", "signature", "sizes", "symbols",
        "verified", "views",
    )  # fmt: skip

    def __init__(
        self,
        layer: str,
        recipe: Recipe,
        known: KnownCalls,
        sizes: dict[str, int],
        device_type: str,
        replayed: Callable[[], None],
        signature: Signature,
    ) -> None:
        trace = recipe.trace
        self.layer = layer
        slots = known.binding.slots
        self.recipe = recipe
        self.known = known
        self.sizes = sizes
        self.symbols = tuple(sizes[binding.symbol] for binding in trace.guards.bindings)
        self.parameters = [slots[index] for index in recipe.parameters]
        viewed = {index for index, _ in recipe.views.values()}
        self.referred = [slots[index] for index in sorted(viewed.union(recipe.parameters))]
        self.shapes = recipe.shapes_at(sizes)
        self.runs_at = {run.anchor: self._runs_at(run.anchor) for run in recipe.runs}
        self.generators = tuple(dict.fromkeys(run.device for run in recipe.runs))
        self.views = {p: ParameterView(slots[slot], view, self.symbols) for p, (slot, view) in recipe.views.items()}
        self.endings = {
            tuple((tuple(evaluate(size, sizes) for size in each.shape), each.dtype, each.shares) for each in ending)
            for ending in trace.endings
        }
        self.shares = trace.shares if self.endings else ()
        more = max(map(len, self.endings), default=0)
        packers = map(self._packer, range(len(trace.packs)))
        self.packers: list[Pack] = [*packers, *[after_a_check] * more, one_too_many]
        self.input_packers = tuple((k, self._input_packer(b)) for k, b in recipe.stored_inputs.items())
        around = (verb.around(recipe) for verb in verbs().values())
        self.around = tuple(wrap for wrap in around if wrap is not None)
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

    def _packer(self, position: int) -> Pack:
        action = self.recipe.actions[position]
        if action.verb is None:
            return self.views[position].pack
        buffer = self.recipe.trace.packs[position].buffer
        place = Place(buffer, self.shapes[position], action.is_source)
        pack = packing_verb(action.verb).packer(place)
        if action.verb == KEEP or self.recipe.trace.buffers[buffer].origin.kind != "input":
            return pack
        keep = packing_verb(KEEP).packer(place)
        return if_whole(unless_full(pack, keep), keep, self.nbytes(frozenset((buffer,))))

    def _input_packer(self, buffer: int) -> Pack:
        verb = self.recipe.assignment.verb_of(buffer)
        assert verb is not None
        return unless_full(packing_verb(verb).packer(Place(buffer, (), is_source=False)), stay)


class KnownCalls:
    """A layer in one state, and what is prepared for its calls.

    ``tables`` are the prepared calls by plan and arguments (a string says why there is none), ``verified`` the recipes
    whose rebuild this layer was seen to get right.
    """

    __slots__ = ("binding", "tables", "verified")

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self.tables: dict[Plan, dict[Hashable, Prepared | str]] = {}
        self.verified: set[Recipe] = set()

    def table(self, plan: Plan) -> dict[Hashable, Prepared | str]:
        """The prepared calls under one plan."""
        table = self.tables.get(plan)
        if table is None:
            if len(self.tables) >= _MAX_PLANS:
                self.tables.clear()
            table = self.tables.setdefault(plan, {})
        return table
