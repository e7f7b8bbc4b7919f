"""Plans a running model batch by batch: before a forward it writes the batch's plan to the layers' engines.

The first batch runs thriftily. Its forward leaves a trace in every engine, from which its own plan is made, and plans
for batches of other sizes: what those will save is arithmetic on the trace (see :mod:`.foresight`). The first forward
under such a plan is compared with what was foreseen, and teaches where it differs. Where no trace tells, a batch of a
new size runs under the next thriftier plan.
"""

from __future__ import annotations

import logging
from dataclasses import astuple, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ...errors import BudgetError
from ...head.managed import ManagedHead
from ...policy.decision import Keep, RecomputeLayer
from ..budget import DeviceMemory, ShareBudget
from ..costs.assemble import assemble
from ..memory.device_memory import device_memory
from ..memory.room import Room
from ..ranks import Ranks, needs_agreement
from .call_size import call_meter
from .foresight import Foresight, is_as_foreseen
from .group import Group
from .live_forwards import LiveForwards
from .made_plan import Demand, Measured, make_plan
from .per_batch import BatchSize, Choice, MadePlan, PlanBook

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch.utils.hooks import RemovableHandle

    from ...engine import TracedReplay
    from ...head.install import HeadHandle
    from ...ledger import LayerLedger
    from ..budget import Budget
    from ..costs.problem import Problem
    from ..costs.roofline import Calibration
    from ..memory.room import Taken

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlannedLayer:
    """A decoder layer and the engine that stands in it."""

    module: torch.nn.Module
    engine: TracedReplay


@dataclass(frozen=True, slots=True)
class PendingMeasurement:
    """A forward that runs to be measured.

    ``size`` is that of the largest batch among the ranks, ``mine`` that of this rank's, ``own`` whether it is as large;
    ``taken`` is what was taken before the forward. ``foreseen`` is the size whose plan it runs under, where that plan
    was made from what was foreseen and no forward showed yet whether it is right.
    """

    size: BatchSize
    mine: BatchSize | None
    own: bool
    taken: Taken
    foreseen: BatchSize | None = None


@dataclass(frozen=True, slots=True)
class Alive:
    """What forwards that wait for their backward take, as :class:`Waiting` counts it; whether any backward came yet.

    ``given_up`` is how many traces the layers gave up so far: ledgers from before hold no more.
    """

    load: int
    held: int
    backward_seen: bool
    given_up: int = 0


class BatchPlanner:
    """Keeps a model within a budget, one plan a batch size.

    ``layers`` are in forward order. ``optimizer`` (itself, or its ``TrainingArguments.optim`` name) says what state is
    still to come. With ``gradients_grow`` parameter gradients are freed before every forward (no accumulation), so they
    come up while activations go. ``head`` is a head that the user had chunked; without one, under a budget that bounds
    the peak, the head is chunked where that pays. ``offload`` allows moving saved tensors to host memory, where the
    device has a link that was measured. ``memory`` tells what a device has and what is used of it.
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
        memory: Callable[[torch.device], DeviceMemory] = device_memory,
    ) -> None:
        self.model = model
        self.layers = tuple(layers)
        self.budget = budget
        self.rates = rates
        self.offload = offload
        self.head = ManagedHead(model, rates, fixed=head, choose=not isinstance(budget, ShareBudget))
        self.room = Room(
            model,
            [layer.module for layer in layers],
            memory,
            optimizer=optimizer,
            gradients_grow=gradients_grow,
        )
        self.ranks = Ranks(next(model.parameters()).device, together=needs_agreement(model))
        self.book = PlanBook()
        #: What batches were measured, or are foreseen, to take, by size.
        self.measured: dict[BatchSize, Measured] = {}
        self.foresight = Foresight()
        #: Those of ``measured`` that are foreseen, and that no forward has shown to be right.
        self.foreseen: set[BatchSize] = set()
        self.live = LiveForwards()
        #: Forwards before one backward; a share of what is saved is the same share of each of them.
        self.group = None if isinstance(budget, ShareBudget) else Group()
        #: The plan in force; None while everything is rebuilt.
        self.current: MadePlan | None = None
        #: What the latest plan was made from.
        self.problem: Problem | None = None
        #: How many forwards ran to be measured.
        self.learning_forwards = 0
        self._settled = False
        self._given_up = 0
        self._pending: PendingMeasurement | None = None
        self._running: BatchSize | None = None
        self._hooks: tuple[RemovableHandle, ...] = ()
        self._meter = call_meter(model)
        self._sizeless = False
        self._latest_has_grad = False

    def attach(self) -> None:
        """Start to plan, with everything rebuilt."""
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
        if alive.given_up > self._given_up:
            self._given_up = alive.given_up
            self._start_over()
        choice = self._choose(size, alive)
        if choice.plan is not self.current or choice.settled != self._settled:
            self._write(choice.plan, settled=choice.settled)
        if not choice.settled:
            self._expect(size, mine, choice.foreseen)
        if choice.plan is None and alive.load:
            self.head.chunk_until_planned(size.head_tokens, 0)

    def _alive(self) -> Alive:
        waiting = self.live.waiting()
        load, held = sum(w.load for w in waiting), sum(w.held for w in waiting)
        given_up = sum(layer.engine.given_up for layer in self.layers)
        return Alive(load, held, backward_seen=self.live.backward_seen, given_up=given_up)

    def _agreed(self, alive: Alive, mine: BatchSize | None) -> tuple[Alive, BatchSize | None]:
        """The most that is alive and the largest size among the ranks; no size when some rank's batch has none."""
        numbers = [alive.load, alive.held, int(not alive.backward_seen), alive.given_up, int(mine is None)]
        load, held, unknown, given_up, missing, *size = self.ranks.largest(
            [*numbers, *astuple(mine or BatchSize(0, 0))]
        )
        together = Alive(load, held, backward_seen=not unknown, given_up=given_up)
        return together, None if missing else BatchSize(*size)

    def _choose(self, size: BatchSize, alive: Alive) -> Choice:
        """The plan for a forward of this size, made now where what it takes is known."""
        grown = self.group is not None and self.group.meet(size, alive.load)
        if grown:
            self.book.plans.clear()
        target = size if self.group is None else self.group.stand_in(size)
        known = self._known(target)
        if self.group is not None and not alive.backward_seen:
            # How many forwards go before a backward is not known yet: none of them may take what the next ones need.
            return Choice(None, settled=known is not None)
        if known is None:
            return self.book.choose(target)
        if grown:
            plan = self._plan_for(known, alive=alive.held)
            unproven = known if known in self.foreseen else None
            return Choice(plan, settled=unproven is None, foreseen=unproven)
        if known not in self.book.plans:
            self.book.add(known, self._plan_for(known, forwards=self._weight(known)))
        return self.book.choose(target, self.foreseen)

    def _known(self, target: BatchSize) -> BatchSize | None:
        """The size of the least batch into which ``target`` fits and of which is known what it takes."""
        fitting = [known for known in self.measured if target.fits_in(known)]
        nearest = min(fitting, key=lambda known: (known.bucket != target.bucket, known), default=None)
        if nearest is None or nearest.bucket != target.bucket:
            return self._foresee(target) or nearest
        return nearest

    def _foresee(self, size: BatchSize) -> BatchSize | None:
        """Note what a batch of this size, or one a little longer, will take; returns the size that it is noted for."""
        longer, neighbours = size.with_margin, {known.bucket for known in self.measured}
        for wanted in (longer, size) if size.bucket == longer.bucket and size.bucket in neighbours else (size,):
            taken = self.room.look(self.ranks, empty=not self.live.waiting())
            made = self.ranks.decide(partial(self._foreseen, wanted, taken))
            if made is not None:
                self._note(wanted, *made)
                self.foreseen.add(wanted)
                return wanted
        return None

    def _foreseen(self, size: BatchSize, taken: Taken) -> tuple[Measured, MadePlan] | None:
        ledgers = self.foresight.ledgers(size)
        if ledgers is None:
            return None
        try:
            return self._planned(size, taken, ledgers)
        except BudgetError:  # where nothing fits, the batch itself must show it
            return None

    def _plan_for(self, size: BatchSize, *, forwards: float = 1.0, alive: int = 0) -> MadePlan:
        """The plan for a size that is known; raises BudgetError on all ranks where one of them has none."""
        demand = Demand(self.budget, self.book.factor, forwards, alive)
        plan = self.ranks.decide(lambda: make_plan(self.measured[size], demand))
        assert plan is not None
        return plan

    def _weight(self, size: BatchSize) -> float:
        return 1.0 if self.group is None else self.group.weight(size)

    def _expect(self, size: BatchSize, mine: BatchSize | None, foreseen: BatchSize | None) -> None:
        """The forward that begins is to be measured, if some rank's batch has this size."""
        own = mine is not None and mine.totals == size.totals
        if not self.ranks.any(own):
            return
        taken = self.room.look(self.ranks, empty=not self.live.waiting())
        self._pending = PendingMeasurement(size, mine, own, taken, foreseen)
        if foreseen is not None:
            return
        self.learning_forwards += 1
        if self.current is None:
            self.head.chunk_until_planned(size.head_tokens, taken.room(self.budget))

    def _is_repeated(self) -> bool:
        """Whether a checkpoint around the whole model runs a forward again, which has to save what it saved.

        A reentrant checkpoint runs it without gradients first: then the plan is for the forward that backward runs.
        """
        if torch._C._current_graph_task_id() == -1:
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
                self.head.observe(output, pending.mine.head_tokens)
            self._learn(pending)
        if size is not None:
            self.live.add(output, size.load, self._held(size))

    def _learn(self, pending: PendingMeasurement) -> None:
        """Note what the forward took, and make the plan for its size; what was foreseen need only be right."""
        if pending.foreseen is not None:
            wrong = self.ranks.any(not self._was_foreseen(pending))
            self.foreseen.discard(pending.foreseen)
            if not wrong:
                return
            self._forget(pending.foreseen)
        if pending.mine is not None:
            self.foresight.note(pending.mine, [layer.engine.sized_trace() for layer in self.layers])
        made = self.ranks.decide(lambda: self._made(pending), prefer=pending.own)
        if made is not None:
            self._note(pending.size, *made)

    def _was_foreseen(self, pending: PendingMeasurement) -> bool:
        if pending.mine is None:
            return True
        foreseen = self.foresight.ledgers(pending.mine) or (None,) * len(self.layers)
        return all(map(is_as_foreseen, foreseen, self._ledgers()))

    def _start_over(self) -> None:
        """A layer does not do what its trace says: what batches were measured to take is not what they take."""
        self.measured.clear()
        self.book.plans.clear()
        self.foreseen.clear()
        self.foresight = Foresight()

    def _forget(self, wrong: BatchSize) -> None:
        """A forecast was wrong, so those not yet shown to be right are as good as it."""
        for size in (wrong, *self.foreseen):
            self.measured.pop(size, None)
            self.book.plans.pop(size, None)
        self.foreseen.clear()

    def _note(self, size: BatchSize, measured: Measured, plan: MadePlan) -> None:
        self.problem = measured.problem
        self.measured = {known: m for known, m in self.measured.items() if not _replaces(size, known)}
        self.measured[size] = measured
        self.book.add(size, plan)

    def _ledgers(self) -> tuple[LayerLedger | None, ...]:
        return tuple(layer.engine.ledger() for layer in self.layers)

    def _made(self, pending: PendingMeasurement) -> tuple[Measured, MadePlan] | None:
        ledgers = self._ledgers()
        if all(ledger is None for ledger in ledgers):
            return None
        return self._planned(pending.size, pending.taken, ledgers)

    def _planned(
        self, size: BatchSize, taken: Taken, ledgers: tuple[LayerLedger | None, ...]
    ) -> tuple[Measured, MadePlan]:
        """What a batch of this size takes, and its plan."""
        grown = self.room.layer_gradients()
        problem = assemble(
            ledgers,
            self.rates,
            gradients=grown,
            heads=self.head.options(size.head_tokens),
            **self.room.other_gradients(grown),
            offload=self.offload,
        )
        measured = Measured(ledgers, problem, taken)
        return measured, make_plan(measured, Demand(self.budget, self.book.factor, self._weight(size)))

    def _held(self, size: BatchSize) -> int:
        """Bytes that the forward that just ran under the plan in force holds, its head's among them."""
        if self.current is not None:
            return self.current.solution.predicted.held + self.current.solution.head.nbytes
        measured = self.measured.get(size)
        return 0 if measured is None else measured.least_held

    def _write(self, plan: MadePlan | None, *, settled: bool) -> None:
        """Hand every engine its part. A layer that keeps everything runs untouched, once there is nothing to learn."""
        self.current, self._settled = plan, settled
        for index, layer in enumerate(self.layers):
            layer.engine.counts = not settled
            if plan is None:
                layer.engine.plan = RecomputeLayer()
            else:
                layer.engine.plan = Keep() if settled and index in plan.whole else plan.writes[index]
        if plan is not None:
            self.head.use(plan.solution.head.chunks)


def _replaces(size: BatchSize, known: BatchSize) -> bool:
    """Whether what a batch of ``size`` takes says all about one of ``known``, as in :meth:`PlanBook.add`."""
    return known.bucket == size.bucket and known.fits_in(size)
