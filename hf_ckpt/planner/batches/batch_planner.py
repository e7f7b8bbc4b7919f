"""Plans a running model batch by batch: before a forward it writes the batch's plan to the layers' engines.

The first batch recomputes everything. Every later one runs under the plan for the least batch into which it fits and of
which :mod:`.learning` knows what it takes; where that is not known, under the next smaller plan.
"""

from __future__ import annotations

import logging
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from rich.filesize import decimal

from ...engine.offloading.transfers import forward_begins, give_back, plannable_bytes
from ...engine.running.graph import is_in_backward
from ...head.managed import ManagedHead
from ...policy.decision import Keep, RecomputeLayer
from ..budget import DeviceMemory, ShareBudget, allowed_bytes, lent
from ..memory.device_memory import device_memory
from ..memory.fragmentation import Fragmentation, Look
from ..memory.room import NO_BOUND, Room, no_host_bound
from ..ranks import Ranks, needs_agreement
from .beside_layers import saved_beside_layers
from .call_size import call_meter
from .group import Group
from .learning import Learning
from .live_forwards import LiveForwards
from .made_plan import Demands, make_plan
from .per_batch import BatchSize, Choice, PlanBook
from .surroundings import Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch.utils.hooks import RemovableHandle

    from ...chunks.measured import ChunkedParts
    from ...engine import TracedReplay
    from ...head.install import HeadHandle
    from ..budget import Budget
    from ..costs.roofline import Calibration
    from .learning import PendingMeasurement
    from .made_plan import Demand
    from .per_batch import MadePlan

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlannedLayer:
    """A decoder layer and the engine that stands in it."""

    module: torch.nn.Module
    engine: TracedReplay


@dataclass(frozen=True, slots=True)
class Alive:
    """What forwards that wait for their backward take, as :class:`Waiting` counts it; whether any backward came yet.

    ``given_up`` is how many traces the layers gave up so far: ledgers from before hold no more. ``given`` is what the
    device has given out (0: it has no allocator to watch, or a forward waits), ``over`` by how much that exceeds the
    budget, ``refused`` how often it had nothing left, ``short`` what it could still give, negated. ``adds`` is whether
    there are gradients while a forward waits.
    """

    load: int
    held: int
    backward_seen: bool
    given_up: int = 0
    given: int = 0
    over: int = 0
    refused: int = 0
    short: int = 0
    adds: bool = False


class BatchPlanner:
    """Keeps a model within a budget, one plan a batch size.

    ``layers`` are in forward order. ``optimizer`` (itself, or its ``TrainingArguments.optim`` name) says what state is
    still to come. With ``gradients_grow`` parameter gradients are freed before every forward (no accumulation), so they
    come up while activations go. ``head`` is a head that the user had chunked; without one, under a budget that bounds
    the peak, the head is chunked where that pays. ``offload`` allows moving saved tensors to host memory, where the
    device has a link that was measured. ``chunked`` are the parts of layers that run in chunks. ``memory`` tells
    what a device has and what is used of it.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        layers: Sequence[PlannedLayer],
        budget: Budget,
        rates: Calibration,
        *,
        optimizer: torch.optim.Optimizer | str | None = None,
        gradients_grow: bool = False,
        head: HeadHandle | None = None,
        offload: bool = False,
        chunked: Sequence[ChunkedParts] = (),
        memory: Callable[[torch.device], DeviceMemory] = device_memory,
    ) -> None:
        self.model = model
        self.layers = tuple(layers)
        self.budget = budget
        self.head = ManagedHead(model, rates, fixed=head, choose=not isinstance(budget, ShareBudget))
        self.room = Room(
            model,
            [layer.module for layer in layers],
            memory,
            optimizer=optimizer,
            gradients_grow=gradients_grow,
            host=plannable_bytes if offload else no_host_bound,
        )
        self.ranks = Ranks(next(model.parameters()).device, together=needs_agreement(model))
        self.book = PlanBook()
        self.live = LiveForwards()
        #: Forwards before one backward; a share of what is saved is the same share of each of them.
        self.group = None if isinstance(budget, ShareBudget) else Group()
        self.fragmentation = Fragmentation(lends=lent(budget))
        self.demands = Demands(budget, self.book, self.group, self.fragmentation)
        self.surroundings = Surroundings(
            rates, self.room, self.head, self.ranks, self.live, offload=offload, chunked=chunked
        )
        self.learning = Learning([layer.engine for layer in layers], self.surroundings, self.demands)
        #: The plan in force; None while everything is rebuilt.
        self.current: MadePlan | None = None
        self._settled = False
        self._made = 0
        self._refused = 0
        #: Whether the device gives more than the budget, whatever plans leave to its allocator, which was said.
        self.exceeded = False
        self._given_up = 0
        self._pending: PendingMeasurement | None = None
        self._running: BatchSize | None = None
        self._hooks: tuple[RemovableHandle, ...] = ()
        self._meter = call_meter(model)
        self._sizeless = False
        self._latest_has_grad = False

    def attach(self) -> None:
        """Start to plan, with everything rebuilt."""
        self.head.attach()
        self._write(None, settled=False)
        self._hooks = (
            self.model.register_forward_pre_hook(self._before, with_kwargs=True, prepend=True),
            self.model.register_forward_hook(self._after),
        )

    def undo(self) -> None:
        """Stop to plan; the layers keep their last plans, and nothing here keeps the optimizer."""
        self.room.optimizer = None
        for hook in self._hooks:
            hook.remove()
        self._hooks = ()
        self.head.undo()
        if self.surroundings.offload:
            give_back()

    def ran_out_of_memory(self) -> bool:
        """Plan under a smaller budget from now on. False when nothing was kept that could be rebuilt."""
        if not self.book.tighten(self.current):
            return False
        _log.warning("out of memory: planning for %.0f%% of the budget from now on", 100 * self.book.factor)
        return True

    def _before(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._pending = self._running = None
        if torch.compiler.is_compiling() or not module.training or self._is_repeated() or not torch.is_grad_enabled():
            return
        mine = self._meter.size(args, kwargs)
        alive, size = self._agreed(self._alive(), mine)
        if size is None:
            self._warn_sizeless()
            return
        self._running = size
        if self.surroundings.offload:
            forward_begins()
        if alive.given_up > self._given_up:
            self._given_up = alive.given_up
            self.learning.start_over()
        if not alive.load and (alive.given or alive.refused > self._refused):
            self._look_at_device(alive)
        choice = self._choose(size, alive)
        if choice.plan is not self.current or choice.settled != self._settled:
            if alive.given and self.current is None:  # blocks of the forward that rebuilt everything fit no other
                self.room.empty_cache()
            self._write(choice.plan, settled=choice.settled)
        if not choice.settled:
            self._pending = self._expected(size, mine, choice)
        if choice.plan is None and alive.load:
            self.head.chunk_until_planned(size.head_tokens, 0)

    def _alive(self) -> Alive:
        waiting = self.live.waiting()
        load, held = sum(w.load for w in waiting), sum(w.held for w in waiting)
        given_up = sum(layer.engine.given_up for layer in self.layers)
        adds = bool(load) and self.group is not None and self.room.has_gradients()
        alive = Alive(load, held, self.live.backward_seen, given_up, adds=adds)
        return alive if load or not self.room.is_cached else self._with_given(alive)

    def _with_given(self, alive: Alive) -> Alive:
        """What the device has given out besides; under a share only whether it had nothing left."""
        memory = self.room.memory(self.room.device)
        if self.group is None:
            return replace(alive, refused=memory.refused)
        limit = allowed_bytes(self.budget, memory)
        if limit is None or memory.given is None:
            return alive
        short = -NO_BOUND if memory.total is None else memory.given - memory.total
        return replace(alive, given=memory.given, over=memory.given - limit, refused=memory.refused, short=short)

    def _look_at_device(self, alive: Alive) -> None:
        """Learn what the allocator holds beyond what is alive, and plan anew where plans leave too little for it."""
        if self.current is None:
            self._refused = alive.refused
            return
        if self._made != self.book.made:
            self._made = self.book.made
            self.fragmentation.start_over()
        if alive.refused > self._refused:
            look = self.fragmentation.refused(alive.given)
        else:
            look = self.fragmentation.look(alive.given, self.current.alive, alive.over, -alive.short)
        self._refused = alive.refused
        if look is Look.PLAN:
            self.book.plans.clear()
        if look is not Look.NOTHING:
            self.room.empty_cache()
        elif self.fragmentation.exceeds(alive.over, -alive.short):
            self._warn_exceeded(alive.over)

    def _warn_exceeded(self, over: int) -> None:
        if not self.exceeded:
            _log.warning(
                "torch's allocator has taken %s more of the device than the budget allows, whatever plans leave to it: "
                "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or give a smaller batch or a larger budget",
                decimal(over),
            )
        self.exceeded = True

    def _agreed(self, alive: Alive, mine: BatchSize | None) -> tuple[Alive, BatchSize | None]:
        """The most that is alive and the largest size among the ranks; no size when some rank's batch has none."""
        numbers = [alive.load, alive.held, int(not alive.backward_seen), alive.given_up, alive.given, alive.over]
        numbers += [alive.refused, alive.short, int(alive.adds), int(mine is None)]
        load, held, unknown, given_up, given, over, refused, short, adds, missing, *size = self.ranks.largest(
            [*numbers, *astuple(mine or BatchSize(0, 0))]
        )
        together = Alive(load, held, not unknown, given_up, given, over, refused, short, bool(adds))
        return together, None if missing else BatchSize(*size)

    def _choose(self, size: BatchSize, alive: Alive) -> Choice:
        """The plan for a forward of this size, made now where what it takes is known."""
        grown = self.group is not None and self.group.meet(size, alive.load, adds=alive.adds)
        if grown:
            self.book.plans.clear()
        target = size if self.group is None else self.group.representative(size)
        known = self.learning.known(target)
        if self.group is not None and not alive.backward_seen:
            # How many forwards go before a backward is not known yet: none of them may take what the next ones need.
            return Choice(None, settled=known is not None)
        if known is None:
            return self.book.choose(target)
        if grown:
            plan = self._plan_for(known, self.demands.beside(alive.held, alive.load / max(1, known.load)))
            unproven = known if known in self.learning.foreseen else None
            return Choice(plan, settled=unproven is None, foreseen=unproven)
        if known not in self.book.plans:
            self.book.add(known, self._plan_for(known, self.demands.of(known)))
        return self.book.choose(target, self.learning.foreseen)

    def _plan_for(self, size: BatchSize, demand: Demand) -> MadePlan:
        """The plan for a size that is known; raises BudgetError on all ranks where one of them has none."""
        plan = self.ranks.decide(lambda: make_plan(self.learning.measured[size], demand))
        assert plan is not None
        return plan

    def _expected(self, size: BatchSize, mine: BatchSize | None, choice: Choice) -> PendingMeasurement | None:
        """What the forward that begins is to show. While it has no plan, its head is chunked where that looks large."""
        pending = self.learning.expect(size, mine, choice.foreseen)
        if pending is not None and choice.plan is None:
            self.head.chunk_until_planned(size.head_tokens, pending.taken.room(self.budget))
        return pending

    def _is_repeated(self) -> bool:
        """Whether a checkpoint around the whole model runs a forward again, which has to save what it saved.

        A reentrant checkpoint runs it without gradients first: then the plan is for the forward that backward runs.
        """
        if not is_in_backward():
            self._latest_has_grad = torch.is_grad_enabled()
            return False
        return self._latest_has_grad

    def _warn_sizeless(self) -> None:
        if not self._sizeless:
            _log.warning(
                "the model is called without a tensor of two or more dimensions, so the budget cannot tell its batches "
                "apart and every layer is recomputed whole: call it with a batch of tensors, or use `full`"
            )
        self._sizeless = True

    def _after(self, module: torch.nn.Module, args: tuple[Any, ...], output: object) -> None:
        pending, self._pending = self._pending, None
        size, self._running = self._running, None
        if pending is not None:
            if pending.mine is not None:
                self._observe(pending.mine, output)
            self.learning.learn(pending)
        if size is not None:
            self.live.add(output, size.load, self._held(size))

    def _observe(self, size: BatchSize, output: object) -> None:
        """Note what a forward of this size did outside the layers."""
        self.head.observe(output, size.head_tokens)
        saved = saved_beside_layers(self.model, output, self.head.vocabulary)
        self.surroundings.beside.note(size, max(0, saved - self.head.norm_bytes(size.head_tokens)))

    def _held(self, size: BatchSize) -> int:
        """Bytes that the forward that just ran under the plan in force holds, inside its layers and beside them."""
        beside = self.surroundings.beside.of(size)
        if self.current is not None:
            return self.current.held + beside
        measured = self.learning.measured.get(size)
        return 0 if measured is None else measured.least_held + beside

    def _write(self, plan: MadePlan | None, *, settled: bool) -> None:
        """Hand every engine its part. A layer that keeps everything runs untouched, once there is nothing to learn."""
        self.current, self._settled = plan, settled
        for index, layer in enumerate(self.layers):
            layer.engine.counts = not settled
            if plan is None:
                layer.engine.plan = RecomputeLayer(offload=self.surroundings.offload)
            else:
                layer.engine.plan = Keep() if settled and index in plan.whole else plan.writes[index]
        if plan is not None:
            self.head.use(plan.solution.head.chunks)
