"""The engine of one decoder layer: stands as its ``_gradient_checkpointing_func``."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import torch
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from ..errors import PolicyError
from ..policy.decision import Keep, RecomputeSegment
from .binding import Binding, surroundings
from .cache import TRACES
from .calls import describe, flatten, numbers_in, resolve_call, with_numbers
from .frame import Frame
from .ledgers import ledger_at
from .offload import check_can_offload
from .prepared import Prepared
from .recipe import recipe_for
from .report import EngineReport, Mode
from .untraceable import UntraceableError
from .untraced import UntracedLayer
from .verify import CheckedFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..ledger import LayerLedger
    from ..policy.decision import Role
    from .calls import LayerCall
    from .ir import Trace
    from .plans import Plan

_LOGGER = logging.getLogger(__name__)
_MAX_BINDINGS = 4
_MAX_STATES = 8
_MAX_PREPARED = 1024
_MAX_VERIFIED = 2048


class TracedReplay:
    """Activation checkpointing of one layer: keep some saved tensors, rebuild the others in backward.

    ``layer`` is the layer's name, for messages. ``plan`` is a policy's decision or a :class:`BufferPlan`; writing the
    attribute switches the plan from the next forward on. ``sublayers`` names, by role, modules relative to the layer.
    Instances can be copied and pickled; what they learned about a layer is left behind. Where a trace would not be
    faithful its sublayers, or the whole layer, are replayed by ``torch.utils.checkpoint``, and :meth:`report` says why.
    """

    def __init__(
        self,
        layer: str,
        plan: Plan,
        sublayers: Mapping[Role, tuple[str, ...]] | None = None,
    ) -> None:
        self.layer = layer
        self.sublayers = dict(sublayers or {})
        self.plan = plan
        self.forwards = 0
        self.replays = 0
        self._bindings: list[Binding] = []
        self._traces: WeakSet[Trace] = WeakSet()  # the cache bounds how many there are
        self._states: set[int] = set()
        self._last: Prepared | None = None
        self._private = False
        self._reason = ""
        self._warned: set[str] = set()
        self._untraced = UntracedLayer(self.sublayers, self._replayed)
        #: Set while somebody measures: told every tensor that a forward holds until backward.
        self.witness: Callable[[torch.Tensor], None] | None = None

    def __call__(self, call: Callable[..., Any], *args: Any) -> Any:
        """Run ``call(*args)``, the layer's forward, saving for backward what the plan says."""
        if not torch.is_grad_enabled() or forward_ad._current_level >= 0:  # forward mode saves nothing for later
            return call(*args)
        if torch.compiler.is_compiling():
            return call(*args) if isinstance(self._plan, Keep) else checkpoint(call, *args, use_reentrant=False)
        self.forwards += 1
        if isinstance(self._plan, Keep):
            self._last, self._reason = None, ""
            return call(*args)
        try:
            prepared, leaves = self._prepare(call, args)
        except UntraceableError as error:
            return self._run_untraced(call, args, error.reason)
        self._last = prepared
        if not prepared.count:
            return call(*args)
        if prepared.verified:
            frame = Frame(prepared, leaves)
            frame.witness = self.witness
            return frame.run(call, args)
        return self._first_use(prepared, leaves, call, args)

    @property
    def plan(self) -> Plan:
        """What to keep, rebuild and offload."""
        return self._plan

    @plan.setter
    def plan(self, plan: Plan) -> None:
        if isinstance(plan, RecomputeSegment):
            raise PolicyError(f"{self.layer}: a segment spans several layers; it needs `engine=torch`")
        self._plan = plan

    def report(self) -> EngineReport:
        """What happened in the last forward, and how often the layer ran."""
        last = self._last
        if self._reason:
            mode = self._untraced.mode
        elif last is None:
            mode = Mode.KEEP if self.forwards else Mode.UNUSED
        else:
            mode = Mode.SYMBOLIC if last.recipe.trace.symbolic else Mode.PER_SHAPE
        recipe = last.recipe if last else None
        return EngineReport(
            layer=self.layer,
            mode=mode,
            reason=self._reason,
            forwards=self.forwards,
            replays=self.replays,
            kept_bytes=last.nbytes(recipe.kept) if last and recipe else 0,
            rebuilt_bytes=last.nbytes(recipe.dropped) if last and recipe else 0,
            offloaded_bytes=last.nbytes(recipe.offloaded) if last and recipe else 0,
            traces=len(self._traces),
        )

    def ledger(self) -> LayerLedger | None:
        """The ledger of the last forward, at its shapes: of its trace, or counted while :attr:`counts` was set."""
        return ledger_at(self._last.recipe.trace, self._last.sizes) if self._last else self._untraced.ledger()

    @property
    def counts(self) -> bool:
        """Whether a forward without a trace counts what the layer's sublayers save, for :meth:`ledger`."""
        return self._untraced.counts

    @counts.setter
    def counts(self, value: bool) -> None:
        self._untraced.counts = value

    def _prepare(self, call: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Prepared, list[torch.Tensor]]:
        layer_call = resolve_call(call, args)
        leaves: list[torch.Tensor] = []
        key: list[Any] = []
        for argument in layer_call.args:
            describe(argument, leaves, key)
        describe(layer_call.kwargs, leaves, key)
        binding = self._bind(layer_call)
        if binding.obstacle:
            raise UntraceableError(binding.obstacle)
        if not leaves:
            raise UntraceableError("it is called without tensors")
        key.append(surroundings(leaves[0].device))
        table = binding.table(self._plan)
        prepared = table.get(tuple(key))
        if prepared is None:
            if len(table) >= _MAX_PREPARED:
                table.clear()
            prepared = table[tuple(key)] = self._prepare_new(layer_call, leaves, tuple(key), binding)
        if isinstance(prepared, str):
            raise UntraceableError(prepared)
        self._reason = ""
        return prepared, leaves

    def _prepare_new(
        self, call: LayerCall, leaves: list[torch.Tensor], key: tuple[Any, ...], binding: Binding
    ) -> Prepared | str:
        structure = flatten((call.args, call.kwargs), [])
        kinds = tuple((t.dtype, t.device, t.requires_grad, tuple(n if n < 2 else -1 for n in t.shape)) for t in leaves)
        values = tuple(numbers_in(structure))
        shape = with_numbers(structure, itertools.repeat(None))
        signature = (binding.key, shape, kinds, key[-1], self.layer if self._private else "")
        try:
            trace, sizes = TRACES.lookup(signature, values, key, call, leaves)
            self._traces.add(trace)
            recipe = recipe_for(trace, self._plan, self.sublayers, sizes)
            if recipe.offloaded:
                check_can_offload(self.layer, leaves[0].device)
        except UntraceableError as error:
            return error.reason
        numbers = TRACES.numbers(signature, values)
        prepared = Prepared(
            self.layer, recipe, binding.slots, sizes, leaves[0].device.type, self._replayed, values, numbers
        )
        prepared.verified = (recipe, values) in binding.verified
        return prepared

    def _bind(self, call: LayerCall) -> Binding:
        """The binding whose state is the layer's now: a known one, or a new one."""
        bindings = self._bindings
        for binding in bindings:
            if binding.is_current(call):
                return binding
        binding = Binding(call)
        previous = next((known for known in bindings if known.layer is call.layer), None)
        if previous is not None and binding.key != previous.key:
            self._states.add(hash(binding.key))
            if len(self._states) > _MAX_STATES:
                raise UntraceableError(f"{binding.changed(previous)} changes from call to call")
        self._bindings = [binding, *bindings[: _MAX_BINDINGS - 1]]
        return binding

    def _first_use(
        self, prepared: Prepared, leaves: list[torch.Tensor], call: Callable[..., Any], args: tuple[Any, ...]
    ) -> Any:
        binding = self._bind(resolve_call(call, args))
        frame = CheckedFrame(prepared, leaves)
        frame.witness = self.witness
        output = frame.run(call, args)
        if not frame.problem:
            prepared.verified = True
            if len(binding.verified) >= _MAX_VERIFIED:
                binding.verified.clear()
            binding.verified.add((prepared.recipe, prepared.values))
        elif prepared.numbers.distrust():
            self._bindings = []
        elif not self._private:
            # Perhaps this layer differs from the one that was traced in a way its signature does not show.
            self._private = True
            self._bindings = []
        else:
            table = binding.table(self._plan)
            for key in [key for key, value in table.items() if value is prepared]:
                table[key] = frame.problem
            self._warn(frame.problem)
        return output

    def _run_untraced(self, call: Callable[..., Any], args: tuple[Any, ...], reason: str) -> Any:
        self._last, self._reason = None, reason
        output = self._untraced.run(call, args, self._plan)
        if self._untraced.mode is Mode.WHOLE:
            self._warn(reason)
        return output

    def _warn(self, reason: str) -> None:
        self._reason = reason
        if reason not in self._warned:
            self._warned.add(reason)
            _LOGGER.warning("%s: whole-layer replay, because %s", self.layer, reason)

    def _replayed(self) -> None:
        self.replays += 1

    def __reduce__(self) -> tuple[Any, ...]:
        return TracedReplay, (self.layer, self._plan, self.sublayers)
