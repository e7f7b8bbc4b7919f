"""From a call of one layer to what is prepared for it, and what the checks of that layer have shown so far."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ...errors import CkptError
from ..layer.binding import Binding, surroundings
from ..layer.calls import describe, flatten, numbers_in, resolve_call, with_numbers
from ..recipes.recipe import recipe_for
from ..tracing.cache import TRACES, Signature
from ..untraceable import UntraceableError, in_words
from ..verb import packing_verb
from .prepared import KnownCalls, Prepared

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from ...policy.decision import Role
    from ..layer.calls import LayerCall
    from ..recipes.plans import Plan
    from ..tracing.ir import Trace

_MAX_BINDINGS = 4
_MAX_STATES = 8
_MAX_PREPARED = 1024
_MAX_VERIFIED = 2048


class Lookup:
    """What one layer's engine knows: the states it met, and the prepared calls of each.

    ``replayed`` is called after every rebuild.
    """

    def __init__(self, layer: str, sublayers: Mapping[Role, tuple[str, ...]], replayed: Callable[[], None]) -> None:
        self.layer = layer
        self.sublayers = sublayers
        self.replayed = replayed
        self.traces: WeakSet[Trace] = WeakSet()  # the cache bounds how many there are
        self._known: list[KnownCalls] = []
        self._states: set[int] = set()
        self._private = False

    def find(self, plan: Plan, call: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Prepared, list[torch.Tensor]]:
        """What is prepared for this call, and the tensors among its arguments.

        Raises UntraceableError when the layer is to be replayed whole.
        """
        layer_call = resolve_call(call, args)
        leaves: list[torch.Tensor] = []
        key: list[Any] = []
        for argument in layer_call.args:
            describe(argument, leaves, key)
        describe(layer_call.kwargs, leaves, key)
        known = self._bind(layer_call)
        if known.binding.obstacle:
            raise UntraceableError(known.binding.obstacle)
        if not leaves:
            raise UntraceableError("it is called without tensors")
        key.append(surroundings(leaves[0].device))
        table = known.table(plan)
        prepared = table.get(tuple(key))
        if prepared is None:
            if len(table) >= _MAX_PREPARED:
                table.clear()
            prepared = table[tuple(key)] = self._prepare(plan, layer_call, leaves, tuple(key), known)
        if isinstance(prepared, str):
            raise UntraceableError(prepared)
        return prepared, leaves

    def trust(self, prepared: Prepared) -> None:
        """This layer's rebuild was equal."""
        prepared.verified = True
        prepared.recipe.proven.add(prepared.signature.values)
        verified = prepared.known.verified
        if len(verified) >= _MAX_VERIFIED:
            verified.clear()
        verified.add(prepared.recipe)

    def distrust(self, prepared: Prepared, problem: str) -> bool:
        """The rebuild differed. Returns whether there is another trace to try, the next time."""
        if not self._private and TRACES.distrust(prepared.signature, prepared.recipe.trace):
            self._known = []
        elif not self._private:
            # Perhaps this layer differs from the one that was traced in a way its signature does not show.
            self._private = True
            self._known = []
        else:
            for table in prepared.known.tables.values():
                for key in [key for key, value in table.items() if value is prepared]:
                    table[key] = problem
            return False
        return True

    def refuse(self, prepared: Prepared, reason: str) -> None:
        """This layer, as it is now, does what no trace shows."""
        prepared.known.binding.obstacle = reason

    def _prepare(
        self, plan: Plan, call: LayerCall, leaves: list[torch.Tensor], key: tuple[Any, ...], known: KnownCalls
    ) -> Prepared | str:
        """The prepared call, or the reason why there is none: no error of a trace ends a training step."""
        try:
            return self._prepare_or_raise(plan, call, leaves, key, known)
        except UntraceableError as error:
            return error.reason
        except CkptError:
            raise
        except Exception as error:
            return f"its trace could not be used ({in_words(error)})"

    def _prepare_or_raise(
        self, plan: Plan, call: LayerCall, leaves: list[torch.Tensor], key: tuple[Any, ...], known: KnownCalls
    ) -> Prepared:
        structure = flatten((call.args, call.kwargs), [])
        shape = with_numbers(structure, itertools.repeat(None))
        kinds = tuple(map(_kind, leaves))
        private = self.layer if self._private else ""
        signature = Signature(
            (known.binding.key, shape, kinds, key[-1], private), tuple(numbers_in(structure)), key
        )  # fmt: skip
        trace, sizes = TRACES.lookup(signature, call, leaves)
        self.traces.add(trace)
        recipe = recipe_for(trace, plan, self.sublayers, sizes)
        for verb, _ in recipe.assignment.stored:
            packing_verb(verb).check_possible(self.layer, leaves[0].device)
        prepared = Prepared(self.layer, recipe, known, sizes, leaves[0].device.type, self.replayed, signature)
        prepared.verified = recipe in known.verified and signature.values in recipe.proven
        return prepared

    def _bind(self, call: LayerCall) -> KnownCalls:
        """What is known of the layer in the state that it has now, or the start of it."""
        for known in self._known:
            if known.binding.is_current(call):
                return known
        binding = Binding(call)
        previous = next((known.binding for known in self._known if known.binding.layer is call.layer), None)
        if previous is not None and binding.key != previous.key:
            self._states.add(hash(binding.key))
            if len(self._states) > _MAX_STATES:
                raise UntraceableError(f"{binding.changed(previous)} changes from call to call")
        fresh = KnownCalls(binding)
        self._known = [fresh, *self._known[: _MAX_BINDINGS - 1]]
        return fresh


def _kind(leaf: torch.Tensor) -> tuple[Any, ...]:
    """What of a tensor argument no trace leaves open."""
    sizes = tuple(n if n < 2 else -1 for n in leaf.shape)
    return leaf.dtype, leaf.device, leaf.requires_grad, sizes
