"""Plans a running model batch by batch: before a forward it writes the batch's plan to the layers' engines.

A batch of a size not seen before runs under the next thriftier plan. Its forward leaves a ledger in every engine, from
which its own plan is made; switching to it later is one attribute a layer.
"""

from __future__ import annotations

import logging
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from ..engine import plan_of
from ..errors import BudgetError
from ..head.managed import ManagedHead
from ..policy.decision import Keep, RecomputeLayer
from .assemble import assemble
from .budget import AutoBudget, DeviceMemory, PeakBudget, ShareBudget, limits_of
from .call_size import call_meter
from .device_memory import device_memory
from .per_batch import BatchSize, MadePlan, PlanBook
from .problem import Limits
from .ranks import from_rank, largest, needs_agreement
from .refine import solve_refined
from .solve import least_peak, solve
from .state import gathered_bytes, gradient_bytes, late_gradient_bytes, optimizer_name, static_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch.utils.hooks import RemovableHandle

    from ..engine import TracedReplay
    from ..head.install import HeadHandle
    from .budget import Budget
    from .cost import Calibration
    from .problem import Problem
    from .solve import Solution

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlannedLayer:
    """A decoder layer and the engine that stands in it."""

    module: torch.nn.Module
    engine: TracedReplay


@dataclass(frozen=True, slots=True)
class PendingMeasurement:
    """A batch run to learn its ledger: its size, what was in memory before its forward, and what is still to come."""

    size: BatchSize
    memory: DeviceMemory
    to_come: int
    #: Whether this rank's own batch has that size; ranks that must plan alike take the plan of one whose has.
    own: bool
    #: Whether some rank's has.
    taught: bool


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
        self.optimizer = optimizer
        self.gradients_grow = gradients_grow
        self.offload = offload
        self.memory = memory
        self.head = ManagedHead(model, rates, fixed=head, choose=not isinstance(budget, ShareBudget))
        self.book = PlanBook()
        #: The plan in force; None while everything is rebuilt.
        self.current: MadePlan | None = None
        #: What the latest plan was made from.
        self.problem: Problem | None = None
        self._settled = False
        self._pending: PendingMeasurement | None = None
        self._hooks: tuple[RemovableHandle, ...] = ()
        self._meter = call_meter(model)
        self._sizeless = False
        self._latest_has_grad = False
        self._device = next(model.parameters()).device
        self._agree = needs_agreement(model)

    def __getstate__(self) -> dict[str, Any]:
        # A copy of the model is another model: what it needs of the optimizer is its name, not a copy of its state.
        return self.__dict__ | {"optimizer": optimizer_name(self.optimizer)}

    def attach(self) -> None:
        """Start to plan, with everything rebuilt."""
        self._write(None, settled=False)
        self._hooks = (
            self.model.register_forward_pre_hook(self._before, with_kwargs=True, prepend=True),
            self.model.register_forward_hook(self._after),
        )

    def undo(self) -> None:
        """Stop to plan; the layers keep their last plans, and nothing here keeps the optimizer."""
        self.optimizer = None
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
        self._pending = None
        if torch.compiler.is_compiling() or not module.training or self._is_repeated() or not torch.is_grad_enabled():
            return
        size = self._meter.size(args, kwargs)
        if size is None:
            self._warn_sizeless()
            return
        mine = size
        if self._agree:
            size = BatchSize(*largest(astuple(size), self._device))
        choice = self.book.choose(size)
        if choice.plan is not self.current or choice.settled != self._settled:
            self._write(choice.plan, settled=choice.settled)
        if not choice.settled:
            pending = self._new_measurement(size, own=mine.totals == size.totals)
            self._pending = pending if pending.taught else None
            if choice.plan is None:
                self.head.chunk_until_planned(size.head_tokens, self._room(pending))

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
        if pending is None:
            return
        ledgers = [layer.engine.ledger() for layer in self.layers]
        if all(ledger is None for ledger in ledgers):
            return
        grown = [gradient_bytes(layer.module.parameters()) for layer in self.layers] if self.gradients_grow else None
        self.problem = assemble(
            ledgers,
            self.rates,
            gradients=grown,
            heads=self.head.options(pending.size.head_tokens),
            **self._other_gradients(grown),
            offload=self.offload,
        )
        solution = self._solve(self.problem, pending)
        writes = tuple(
            RecomputeLayer() if ledger is None else plan_of(ledger, plan.kept, plan.offloaded)
            for ledger, plan in zip(ledgers, solution.layers, strict=True)
        )
        kinds = [self.problem.kind(i) for i in range(len(ledgers))]
        whole = (i for i, plan in enumerate(solution.layers) if ledgers[i] and plan.kept == kinds[i].everything)
        plan = MadePlan(solution, writes, frozenset(whole))
        if self._agree:
            plan = from_rank(plan, mine=pending.own, device=self._device)
        self.book.add(pending.size, plan)

    def _new_measurement(self, size: BatchSize, *, own: bool) -> PendingMeasurement:
        """Note what is in memory, the same on all ranks that must agree."""
        memory, state = self.memory(self._device), static_state(self.model, self.optimizer)
        to_come = state.to_come + max(gathered_bytes(layer.module) for layer in self.layers)
        if self.gradients_grow:
            to_come -= max(0, state.gradients - state.gradients_now)
        if self._agree:
            used, to_come, taught = largest([memory.used, to_come, int(own)], self._device)
            return PendingMeasurement(size, DeviceMemory(memory.total, used), to_come, own, bool(taught))
        return PendingMeasurement(size, memory, to_come, own, taught=own)

    def _solve(self, problem: Problem, pending: PendingMeasurement) -> Solution:
        """The plan within the budget; ``auto`` tries the thriftiest one where the model says that nothing fits."""
        try:
            limits = limits_of(self.budget, problem, pending.memory, pending.to_come)
            if limits.peak is not None:
                spared = limits.peak - int(limits.peak * self.book.factor)
                limits = replace(limits, peak=limits.peak - spared, beside=limits.beside + spared)
            return solve_refined(problem, limits)
        except BudgetError as error:
            if not isinstance(self.budget, AutoBudget) or pending.memory.total is None:
                raise
            _log.warning("trying the thriftiest plan: %s", error)
            return solve(problem, Limits(peak=least_peak(problem)))

    def _room(self, pending: PendingMeasurement) -> int | None:
        """Bytes for activations under this budget, before any ledger is known; None when nothing says."""
        total = self.budget.nbytes if isinstance(self.budget, PeakBudget) else pending.memory.total
        return None if total is None else total - pending.memory.used - pending.to_come

    def _other_gradients(self, grown: Sequence[int] | None) -> dict[str, int]:
        """Gradients outside the layers: those of the embeddings come last, the head's before any layer's."""
        if grown is None:
            return {}
        late = late_gradient_bytes(self.model)
        return {
            "head_gradients": gradient_bytes(self.model.parameters()) - sum(grown) - late,
            "late_gradients": late,
        }

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
