"""``SelectiveCkpt``: a policy in one line of a Trainer script."""

from __future__ import annotations

import inspect
import logging
import os
from typing import TYPE_CHECKING, Any

import torch
from transformers import Trainer, TrainerCallback
from transformers.trainer_callback import ExportableState

from hf_ckpt._apply import put_on
from hf_ckpt._undo import AttributeChange
from hf_ckpt.errors import PolicyError
from hf_ckpt.measuring.clock import StepClock
from hf_ckpt.measuring.report import Report, to_metrics
from hf_ckpt.measuring.table import head_line
from hf_ckpt.measuring.verdict import check_effect, unseen
from hf_ckpt.planner.budget import parse_budget
from hf_ckpt.planner.out_of_memory import TighteningStep
from hf_ckpt.policies.budget import BudgetPolicy
from hf_ckpt.policy import parse_policy
from hf_ckpt.policy.platform import Engine, parse_engine
from hf_ckpt.resolving import resolve_on

from .arguments import check_fsdp_plugin, is_compiled
from .guard import GuardedStep
from .optimizer import best_known
from .trainer_frame import Run, calling, move_to_front

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn
    from transformers import TrainerControl, TrainerState, TrainingArguments

    from hf_ckpt.handle import Handle
    from hf_ckpt.policy import Policy

logger = logging.getLogger("hf_ckpt")

DEFAULT_POLICY = "budget=auto"
#: Layers may sit a step out (layer drop, a batch without images): after so many steps those never seen are given up.
MOST_MEASURED_STEPS = 5


class SelectiveCkpt(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Selective activation checkpointing for ``Trainer(callbacks=[SelectiveCkpt()])``.

    ``policy`` is a policy string, its dict form or a Policy; ``budget`` is short for a ``budget`` policy: a size with
    its unit for the device's peak in bytes (``"72GiB"``, ``"80GB"``), a share above 0 and up to 1 of what the layers
    would save (``0.5``, ``"50%"``), or ``"auto"``, which is also what neither means; ``engine`` as in
    ``hf_ckpt.apply``.

    It replaces ``activation_checkpointing`` (or ``gradient_checkpointing``) of the TrainingArguments where that is on.
    It goes on when training begins and comes off when training ends, also by an exception out of a training step; after
    one elsewhere (data loading, the optimizer, another callback) the next SelectiveCkpt or ``hf_ckpt.apply`` on the
    model takes it off, or :meth:`restore`. After the first step the run itself must show that every chosen layer that
    ran was replayed, else NoEffectError stops the run with the cause and the model is restored; chosen layers that did
    not run are waited for, a few steps.

    ``report`` is the table of the measured step, None before there is one. Logs get ``ckpt/held_bytes`` (after
    forward), ``ckpt/recomputed_share`` (of the layers), ``ckpt/backward_forward_ratio`` (of times) and on CUDA
    ``ckpt/peak_bytes``. ``ckpt/held_bytes`` ends with the model's forward: a loss outside it
    (``label_smoothing_factor``, a ``compute_loss`` of one's own) is not counted.

    Raises PolicyError and BudgetError at construction; these, ConflictError and ModelStructureError before the first
    step.
    """

    def __init__(
        self,
        policy: str | Mapping[str, Any] | Policy | None = None,
        *,
        budget: str | float | None = None,
        engine: str | Engine = Engine.TRACED,
    ) -> None:
        self.policy = _chosen_policy(policy, budget)
        self.engine = parse_engine(engine)
        self.report: Report | None = None
        self._handle: Handle | None = None
        self._clock: StepClock | None = None
        self._measuring = False
        self._measured_steps = 0
        self._seen: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        # A pickled or copied callback is a fresh one with the same policy: the model it sits on does not travel along.
        return self.__dict__ | {"_handle": None, "_clock": None, "_measuring": False}

    def state(self) -> dict[str, Any]:
        """What a Trainer checkpoint stores: the policy, in the string form it can be built from."""
        args = {
            "policy": str(self.policy),
            "engine": str(self.engine),
        }
        return {"args": args, "attributes": {}}

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Refuse a double checkpointing as early as possible."""
        check_fsdp_plugin(args.fsdp_config, os.environ)
        move_to_front(self, inspect.currentframe())

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Apply the policy: the model is prepared and wrapped, the first step is still to come."""
        check_fsdp_plugin(args.fsdp_config, os.environ)
        self.restore()
        self._tell_drift(state)
        model: nn.Module = kwargs["model"]
        compiled = is_compiled(args)
        engine = Engine.TORCH if compiled else self.engine  # a trace cannot be replayed inside a compiled graph
        anatomy, resolved = resolve_on(model, self.policy, engine=engine, compiled=compiled)
        self._handle = put_on(
            model,
            anatomy,
            resolved,
            engine,
            optimizer=best_known(kwargs.get("optimizer"), args.optim),
            accumulates_gradients=args.gradient_accumulation_steps > 1,
        )
        self._clock = StepClock(model)
        self._handle.installation.changes.append(self._clock)
        trainer = calling(Trainer, inspect.currentframe())
        if trainer is not None:
            self._end_with(trainer, self._handle)
        self._measured_steps = 0
        self._seen = set()
        self._measuring = not compiled
        if self._measuring:
            self._handle.start_measuring()
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Under a budget the first batch only teaches: measure the next one too, which runs under its own plan.

        Also measure on while there are layers to prove the effect on that no step has run yet.
        """
        handle = self._handle
        if handle is None or not 0 < self._measured_steps < MOST_MEASURED_STEPS:
            return
        if (handle.planner is not None and self._measured_steps == 1) or self._unseen():
            handle.start_measuring()
            self._measuring = True

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The backward of one accumulated micro-batch is over."""
        self._backward_done()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The backward of the last micro-batch is over; the optimizer has not touched the weights yet."""
        self._backward_done()
        if self._measuring:
            self._finish_measuring()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add our metrics to the logs that the reporters after us read, and to the state's history."""
        if self._handle is None or self.report is None or logs is None or "loss" not in logs:
            return
        metrics = self._metrics()
        logs.update(metrics)
        if state.log_history:
            state.log_history[-1].update(metrics)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Bring the model back as it was."""
        self.restore()

    def restore(self) -> None:
        """Take the policy off and bring the model back as it was; without a policy on, do nothing.

        The Trainer does so at the end. Call it after a training that ended by an exception outside its training step.
        """
        self._clock = None
        self._measuring = False
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.restore()

    def _end_with(self, trainer: Trainer, handle: Handle) -> None:
        """Take the policy off when a step of this training raises, or later once the training no longer runs."""
        step: Callable[..., Any] = trainer.training_step
        if handle.planner is not None:
            # Under a budget, plan for less before `auto_find_batch_size` shrinks the batch.
            step = TighteningStep(step, handle.planner)
        handle.installation.changes.append(AttributeChange(trainer, "training_step", GuardedStep(step, handle)))
        handle.in_use = Run.of(trainer)

    def _backward_done(self) -> None:
        if self._clock is not None:
            self._clock.backward_done()

    def _finish_measuring(self) -> None:
        assert self._handle is not None
        self._handle.stop_measuring()
        self._measuring = False
        self._measured_steps += 1
        self.report = self._handle.report()
        try:
            check_effect(self.report, self._handle.anatomy)
        except Exception:
            self.restore()
            raise
        self._seen |= {layer.name for layer in self.report.layers if layer.ran}
        logger.info("%s", self.report)
        self._tell_unproven(self.report)

    def _unseen(self) -> set[str]:
        """The layers whose effect no measured step could prove, for none has run them."""
        if self._handle is None or self.report is None:
            return set()
        return unseen(self.report, self._handle.anatomy) - self._seen

    def _tell_unproven(self, report: Report) -> None:
        if self._measured_steps == 1:
            for head in report.heads:
                if line := head_line(head):
                    logger.warning("%s", line)
        left = self._unseen()
        if left and self._measured_steps == MOST_MEASURED_STEPS:
            logger.warning(
                "policy `%s` is not proven on %s, which did not run in the first %d steps",
                report.policy, ", ".join(sorted(left)), MOST_MEASURED_STEPS,
            )  # fmt: skip

    def _metrics(self) -> dict[str, Any]:
        assert self.report is not None
        metrics = to_metrics(self.report)
        ratio = self._clock.backward_forward_ratio() if self._clock is not None else None
        if ratio is not None:
            metrics["ckpt/backward_forward_ratio"] = round(ratio, 3)
        if torch.cuda.is_available():
            metrics["ckpt/peak_bytes"] = torch.cuda.max_memory_allocated()
        return metrics

    def _tell_drift(self, state: TrainerState) -> None:
        saved = state.stateful_callbacks.get("SelectiveCkpt") if isinstance(state.stateful_callbacks, dict) else None
        before = saved.get("args", {}).get("policy") if isinstance(saved, dict) else None
        if before is not None and before != str(self.policy):
            logger.warning(
                "this run resumes with policy `%s`, the checkpoint was written under `%s`", self.policy, before
            )


def _chosen_policy(policy: str | Mapping[str, Any] | Policy | None, budget: str | float | None) -> Policy:
    if policy is not None and budget is not None:
        raise PolicyError(f"SelectiveCkpt takes a policy or a budget, not both: write policy='budget={budget}'")
    if budget is not None:
        return BudgetPolicy(parse_budget(budget))
    return parse_policy(DEFAULT_POLICY if policy is None else policy)
