"""A layer that cannot be traced: run plainly, with single pieces replayed, or replayed whole, as its plan says.

What is replayed goes through ``torch.utils.checkpoint`` (non-reentrant). A piece is caught at its ``forward``, so
hooks on the piece itself run once; hooks inside it run again, as under any checkpoint.
"""

from __future__ import annotations

import functools
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch.utils._pytree import tree_flatten, tree_iter, tree_unflatten

from ...assignment import Assignment
from ...compat.kv_cache import replay_of
from ...policy.decision import Keep, RecomputeSublayers, RecomputeUnion
from ..kept_choices import counted_choices
from ..layer.calls import resolve_call
from ..report import Mode
from ..untraceable import UntraceableError
from ..written_arguments import checkpointed
from .counted_ledger import SUBLAYER_OP, counted_ledger, note_seconds
from .pieces import LAYER, outermost, pieces_of, without_inner
from .saved_counter import SavedCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from torch import nn

    from ...ledger import LayerLedger
    from ...policy.decision import Role
    from ..recipes.plans import Plan


class UntracedLayer:
    """Runs one layer without a trace. ``sublayers`` names its modules by role; ``replayed`` is told of every replay."""

    def __init__(self, sublayers: Mapping[Role, tuple[str, ...]], replayed: Callable[[], None]) -> None:
        self.sublayers = sublayers
        self.replayed = replayed
        #: How the latest forward ran.
        self.mode = Mode.UNUSED
        self._class_name = ""
        self._pieces: dict[str, str] = {}
        #: Names of pieces that must not be replayed alone, by layer, of all that were counted so far.
        self._unfit: WeakKeyDictionary[nn.Module, set[str]] = WeakKeyDictionary()
        #: By layer the pieces that are left, and the latest plan with what it replays: finding either takes long.
        self._known: WeakKeyDictionary[nn.Module, dict[str, str]] = WeakKeyDictionary()
        self._chosen: WeakKeyDictionary[nn.Module, tuple[Plan, frozenset[str] | None]] = WeakKeyDictionary()
        self._counts = False
        self._counter: SavedCounter | None = None

    @property
    def counts(self) -> bool:
        """Whether to count what the pieces save, for :meth:`ledger`."""
        return self._counts

    @counts.setter
    def counts(self, value: bool) -> None:
        self._counts = value
        if value:  # the modules in a layer may be others since
            self._known.clear()
            self._chosen.clear()

    def run(self, call: Callable[..., Any], args: tuple[Any, ...], plan: Plan) -> Any:
        """Run ``call(*args)``, the layer's forward, under ``plan``."""
        layer = _layer_of(call, args)
        self._pieces = {} if layer is None else self._pieces_of(layer, plan)
        again = None if layer is None else self._again(layer, plan)
        self.mode = Mode.WHOLE if again is None else Mode.SUBLAYERS if again else Mode.KEEP
        self._counter = counter = self._new_counter(layer, call, args) if self.counts else None
        if layer is None:
            return self._checkpointed(call, args)
        once = functools.partial(self._once, layer, counter, again or frozenset(), call)
        output = self._checkpointed(call, args, once, layer) if again is None else once(*args)
        if counter is not None:
            counter.settle()
            self._forget(layer, counter.watch.unfit)
            note_seconds(self._class_name, counter)
        return output

    def ledger(self) -> LayerLedger | None:
        """What the latest forward was counted to save; None when it was not counted."""
        return None if self._counter is None else counted_ledger(self._class_name, self._counter, self._pieces)

    def given(self) -> tuple[int, ...]:
        """The storages, by key, of the tensors that the latest forward was given; none when it was not counted."""
        return () if self._counter is None else tuple(keys[0] if keys else -1 for keys in self._counter.inputs)

    def _pieces_of(self, layer: nn.Module, plan: Plan) -> dict[str, str]:
        """The pieces that may be replayed alone, as far as is known."""
        if self.counts:
            self._unfit.setdefault(layer, set())
        if layer not in self._unfit or not (self.counts or isinstance(plan, Assignment)):
            return {}
        if layer not in self._known:
            found, unfit = pieces_of(layer, self.sublayers), self._unfit[layer]
            self._known[layer] = {name: outer for name, outer in found.items() if name not in unfit}
        return self._known[layer]

    def _forget(self, layer: nn.Module, unfit: set[str]) -> None:
        """Pieces that turned out not to be replayable alone are none from now on."""
        if unfit:
            self._unfit[layer] |= unfit
            self._pieces = self._known[layer] = {n: outer for n, outer in self._pieces.items() if n not in unfit}
            self._chosen.pop(layer, None)

    def _again(self, layer: nn.Module, plan: Plan) -> frozenset[str] | None:
        if layer not in self._chosen or self._chosen[layer][0] is not plan:
            # Where nobody counted, nobody knows which pieces may be replayed alone.
            unknown = isinstance(plan, Assignment) and layer not in self._unfit
            again = None if unknown else names_to_replay(plan, self.sublayers, self._pieces)
            self._chosen[layer] = plan, again
        return self._chosen[layer][1]

    def _new_counter(
        self, layer: nn.Module | None, call: Callable[..., Any], args: tuple[Any, ...]
    ) -> SavedCounter | None:
        if layer is None:
            return None
        resolved = resolve_call(call, args)
        tensors = [v for v in tree_iter((resolved.args, resolved.kwargs)) if isinstance(v, torch.Tensor)]
        self._class_name = type(layer).__name__
        return SavedCounter(layer, tensors, self._pieces) if tensors else None

    def _once(
        self,
        layer: nn.Module,
        counter: SavedCounter | None,
        again: frozenset[str],
        call: Callable[..., Any],
        *args: Any,
    ) -> Any:
        """The forward itself, with the pieces ``again`` under checkpoints."""
        if counter is None and not again:
            return call(*args)
        with ExitStack() as stack:
            replayed: set[str] = set()
            for name in again.union(self._pieces if counter is not None else ()):
                stack.enter_context(self._caught(layer, name, counter, replayed, replay=name in again))
            if counter is not None:
                stack.enter_context(counted_choices(layer, args, counter.chose))
                stack.enter_context(counter.watching())
                stack.enter_context(counter.running(LAYER, args, {}))
            return call(*args)

    @contextmanager
    def _caught(
        self, layer: nn.Module, name: str, counter: SavedCounter | None, replayed: set[str], *, replay: bool
    ) -> Iterator[None]:
        """Stand in for a piece's ``forward`` while the layer runs; ``replayed`` has the one under a checkpoint then."""
        module = layer.get_submodule(name)
        attributes = vars(module)
        before = attributes.get("forward")
        forward = before if before is not None else functools.partial(type(module).forward, module)

        def counted(*args: Any, **kwargs: Any) -> Any:
            if counter is None:
                return forward(*args, **kwargs)
            with counter.watching(), counter.running(name, args, kwargs):
                return forward(*args, **kwargs)

        def checkpointed(*args: Any, **kwargs: Any) -> Any:
            if replayed:  # a replay of that piece runs what is in it plainly, so its forward must, too
                return counted(*args, **kwargs)
            tensors, spread = _tensors_apart(args, kwargs)
            replay = replay_of(forward, (*args, *kwargs.values()))
            replayed.add(name)
            try:
                return self._checkpointed(spread(replay), tensors, spread(counted), module)
            finally:
                replayed.clear()

        attributes["forward"] = checkpointed if replay else counted
        try:
            yield
        finally:
            if before is None:
                del attributes["forward"]
            else:
                attributes["forward"] = before

    def _checkpointed(
        self,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        first: Callable[..., Any] | None = None,
        module: nn.Module | None = None,
    ) -> Any:
        """``call(*args)`` under a checkpoint; the forward itself is ``first``."""
        return checkpointed(first or call, args, module, replay=call, replaying=self.replayed)


def names_to_replay(
    plan: Plan, sublayers: Mapping[Role, tuple[str, ...]], pieces: Iterable[str]
) -> frozenset[str] | None:
    """The ``pieces`` that ``plan`` replays one by one; None where the whole layer is replayed."""
    match plan:
        case Keep():
            return frozenset()
        case Assignment():
            # What another verb would store is made again: only traced layers have other verbs.
            if _key(LAYER) not in plan.kept:
                return None
            return frozenset(without_inner(n for n in pieces if _key(n) not in plan.kept))
        case RecomputeSublayers(roles):
            return frozenset(outermost({role: sublayers.get(role, ()) for role in roles}))
        case RecomputeUnion(parts) if all(isinstance(part, RecomputeSublayers) for part in parts):
            chosen = [names_to_replay(part, sublayers, pieces) or frozenset() for part in parts]
            return frozenset(without_inner(frozenset[str]().union(*chosen)))
    return None


def _key(name: str) -> str:
    """The key of what a sublayer saves, as :func:`..recipes.plans.buffer_keys` makes it from a counted ledger."""
    return f"{name}/{SUBLAYER_OP}/0/0"


def _layer_of(call: Callable[..., Any], args: tuple[Any, ...]) -> nn.Module | None:
    try:
        return resolve_call(call, args).layer
    except UntraceableError:
        return None


def _tensors_apart(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[torch.Tensor, ...], Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """The distinct tensors among the arguments, and how a function of all arguments becomes one of these tensors.

    A checkpoint saves the tensors that it is given one by one, so that hooks see them. What is in lists, dicts and
    caches stays there: a sublayer may write into its caller's.
    """
    leaves, spec = tree_flatten((args, kwargs), is_leaf=lambda value: not (type(value) is tuple or value is kwargs))
    tensors = {id(leaf): leaf for leaf in leaves if isinstance(leaf, torch.Tensor)}
    places = {key: place for place, key in enumerate(tensors)}
    template = [(places[id(leaf)], None) if id(leaf) in places else (None, leaf) for leaf in leaves]

    def spread(function: Callable[..., Any]) -> Callable[..., Any]:
        return functools.partial(_spread, function, template, spec)

    return tuple(tensors.values()), spread


def _spread(function: Callable[..., Any], template: Sequence[tuple[int | None, Any]], spec: Any, *given: Any) -> Any:
    """Call ``function`` with the arguments of which :func:`_tensors_apart` set the tensors apart."""
    values = [leaf if place is None else given[place] for place, leaf in template]
    positional, named = tree_unflatten(values, spec)
    return function(*positional, **named)
