"""``SelectiveCkpt``: a policy in one line of a Trainer script."""

from __future__ import annotations

import inspect
import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from transformers import Trainer, TrainerCallback
from transformers.trainer_callback import ExportableState

from hf_ckpt._apply import put_on
from hf_ckpt.certificate.first_step import certificate_of, certify_with
from hf_ckpt.doctor.checkup import Checkup
from hf_ckpt.doctor.facts import ModelSettings
from hf_ckpt.doctor.outlook import Outlook
from hf_ckpt.doctor.start_facts import model_settings
from hf_ckpt.doctor.watch import Watch
from hf_ckpt.errors import PolicyError
from hf_ckpt.head.options import SMOOTHED_BYTES_PER_LOGIT
from hf_ckpt.measuring.clock import StepClock
from hf_ckpt.planner.budget import parse_budget
from hf_ckpt.policies.budget import BudgetPolicy
from hf_ckpt.policy import parse_policy
from hf_ckpt.policy.platform import Engine, parse_engine
from hf_ckpt.resolving import resolve_on

from .calling_trainer import calling, check_alone, move_to_front
from .diagnosed import diagnose_with
from .first_steps import FirstSteps
from .guard import restore_after_trainings, restore_with
from .metrics import step_metrics
from .trainer_facts import (
    best_known,
    check_fsdp_plugin,
    check_one_gpu_a_process,
    is_compiled,
    is_logged,
    warn_of_drift,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn
    from transformers import TrainerControl, TrainerState, TrainingArguments

    from hf_ckpt.certificate.certificate import Certificate
    from hf_ckpt.doctor.check import Trouble
    from hf_ckpt.doctor.out_of_memory import Diagnosis
    from hf_ckpt.handle import Handle
    from hf_ckpt.measuring.report import Report
    from hf_ckpt.policy import Policy

logger = logging.getLogger("hf_ckpt")

DEFAULT_POLICY = "budget=auto"
_OF_ONE_RUN = ("_handle", "_clock", "_watch", "_outlook", "_checkup", "diagnosis", "certificate")
FIRST_STEP = "first_step"


class SelectiveCkpt(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Selective activation checkpointing for ``Trainer(callbacks=[SelectiveCkpt()])``.

    It replaces ``activation_checkpointing`` (or ``gradient_checkpointing``) of the TrainingArguments where that is on.
    It goes on when training begins and comes off when training ends, also by an exception or an interrupt. After the
    first step the run itself must show that every chosen layer that ran was replayed, else NoEffectError stops the run
    with the cause and the model is restored; chosen layers that did not run are waited for, a few steps.

    Logs get, of the logged step, ``ckpt/held_bytes`` (before backward, of all forwards that wait for it) and
    ``ckpt/recomputed_share`` (of the layers' forwards), under a budget ``ckpt/learning_steps`` (steps since the last
    log that recomputed all of a batch to measure it), ``ckpt/backward_forward_ratio`` (of times) and on CUDA
    ``ckpt/peak_bytes``. A loss outside the model (``label_smoothing_factor``, a ``compute_loss`` of one's own) counts
    in ``ckpt/held_bytes``.

    Args:
        policy: A policy string (``"attention+norm"``), its dict form (``{"budget": "72GiB"}``) or a Policy; by default
            ``budget=auto``.
        budget: Short for a ``budget`` policy: a size with its unit for the device's peak in bytes (``"72GiB"``,
            ``"80GB"``), a share above 0 and up to 1 of what the layers would save (``0.5``, ``"50%"``), or ``"auto"``.
        engine: As in ``hf_ckpt.apply``.
        doctor: Whether to check, before the first step and in the first ones, for what a run shows of ckpt-lint's
            mistakes: a finding is logged with its rule and line, and stands in ``findings``.
        verify: ``"first_step"`` runs the first micro-batch four times more, twice without any checkpointing, and says
            whether loss and gradients are bitwise equal, or in which layer, operator and for what cause they first are
            not; ``certificate`` has it as data. It needs the memory that the step takes without checkpointing.

    Raises:
        PolicyError: at construction when the policy is malformed, before the first step when it does not fit the model.
        BudgetError: at construction when the budget is malformed, in the first steps when nothing fits it.
        ConflictError: before the first step, when something else checkpoints the same layers.
        ModelStructureError: before the first step, when the model has no decoder layers.

    Example:
        >>> Trainer(model, args, train_dataset=data, callbacks=[SelectiveCkpt(budget="72GiB")]).train()
    """

    def __init__(
        self,
        policy: str | Mapping[str, Any] | Policy | None = None,
        *,
        budget: str | float | None = None,
        engine: str | Engine = Engine.TRACED,
        doctor: bool = False,
        verify: str | None = None,
    ) -> None:
        if verify not in (None, FIRST_STEP):
            raise PolicyError(
                f"SelectiveCkpt(verify={verify!r}) is not known: write verify={FIRST_STEP!r}, or leave it out"
            )
        self.policy = _chosen_policy(policy, budget)
        self.engine = parse_engine(engine)
        self.doctor = doctor
        self.verify = verify
        self._checkup: Checkup | None = None
        self._built = ModelSettings()
        self._handle: Handle | None = None
        self._clock: StepClock | None = None
        self._watch: Watch | None = None
        self._outlook: Outlook | None = None
        self._first_steps = FirstSteps()
        #: Why this run ran out of memory; None while it has not.
        self.diagnosis: Diagnosis | None = None
        #: Whether the first step is bitwise the one without checkpointing; None where ``verify`` does not ask.
        self.certificate: Certificate | None = None
        restore_after_trainings(_restore_all)

    def __getstate__(self) -> dict[str, Any]:
        # A pickled or copied callback is a fresh one with the same policy: the model it sits on does not travel along.
        return self.__dict__ | dict.fromkeys(_OF_ONE_RUN)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        restore_after_trainings(_restore_all)  # it may be unpickled in another process

    @property
    def report(self) -> Report | None:
        """The latest measured step; None before there is one."""
        return self._first_steps.report

    @property
    def findings(self) -> list[Trouble]:
        """What ``doctor=True`` found in the latest run, each thing once."""
        return [] if self._checkup is None else self._checkup.found

    def state(self) -> dict[str, Any]:
        """What a Trainer checkpoint stores: the policy, in the string form it can be built from."""
        args = {
            "policy": str(self.policy),
            "engine": str(self.engine),
            "doctor": self.doctor,
            "verify": self.verify,
        }
        return {"args": args, "attributes": {}}

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Refuse a double checkpointing, and what copies the model every step, as early as possible."""
        check_fsdp_plugin(args.fsdp_config, os.environ)
        check_one_gpu_a_process(args, kwargs.get("model"))
        check_alone(self, inspect.currentframe())
        move_to_front(self, inspect.currentframe())
        self._built = model_settings(kwargs.get("model"))

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Apply the policy: the model is prepared and wrapped, the first step is still to come."""
        check_fsdp_plugin(args.fsdp_config, os.environ)
        check_one_gpu_a_process(args, kwargs["model"])
        check_alone(self, inspect.currentframe())
        self.restore()
        self._checkup = self.certificate = None
        warn_of_drift(self.policy, state)
        trainer = calling(Trainer, inspect.currentframe())
        handle = self._begin(kwargs["model"], args, kwargs.get("optimizer"), trainer)
        if self.verify == FIRST_STEP and trainer is not None:
            handle.installation.changes.append(certify_with(trainer, partial(self._certify, trainer)))

    def _begin(self, model: nn.Module, args: TrainingArguments, optimizer: Any, trainer: Trainer | None) -> Handle:
        """Put the policy on, and watch the training that begins."""
        handle = self._handle = self._put_on(model, args, optimizer)
        try:
            self._watch_over(handle, args, trainer)
        except BaseException:
            self.restore()
            raise
        return handle

    def _watch_over(self, handle: Handle, args: TrainingArguments, trainer: Trainer | None) -> None:
        self._clock = StepClock(handle.model)
        handle.installation.changes.append(self._clock)
        self._watch = Watch(handle.model)
        handle.installation.changes.append(self._watch)
        if trainer is not None:
            restore_with(trainer, handle)
            self._outlook = Outlook(diagnose_with(trainer, handle, self._watch, self._diagnosed))
        self._first_steps = FirstSteps()
        if self.doctor:
            self._check(handle, args)
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Measure the first steps and logged ones; a compiled graph has no replay that could be counted."""
        if self._watch is not None:
            self._watch.begin_step(state.global_step + 1)
        if self._checkup is not None:
            self._checkup.begin_step()
        if self._outlook is not None:
            self._outlook.look(state.max_steps)
        if self._handle is not None and not is_compiled(args):
            self._first_steps.before_step(self._handle, logged=is_logged(args, state))

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
        if self._checkup is not None:
            self._checkup.end_step()
        if self._handle is None:
            return
        try:
            self._first_steps.after_backward(self._handle)
        except Exception:
            self.restore()
            raise

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
        metrics = step_metrics(self.report, self._clock)
        if self._handle.planner is not None:
            metrics["ckpt/learning_steps"], self._first_steps.learning = self._first_steps.learning, 0
        logs.update(metrics)
        if state.log_history:
            state.log_history[-1].update(metrics)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Bring the model back as it was."""
        if self._checkup is not None:
            self._checkup.end()
        self.restore()

    def restore(self) -> None:
        """Take the policy off and bring the model back as it was; without a policy on, do nothing.

        A Trainer that has the callback does so at the end, also by an exception.
        """
        self._clock = self._watch = self._outlook = None
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.restore()

    def _put_on(self, model: nn.Module, args: TrainingArguments, optimizer: Any) -> Handle:
        compiled = is_compiled(args)
        engine = Engine.TORCH if compiled else self.engine  # a trace cannot be replayed inside a compiled graph
        anatomy, resolved = resolve_on(model, self.policy, engine=engine, compiled=compiled)
        handle = put_on(
            model,
            anatomy,
            resolved,
            engine,
            optimizer=best_known(optimizer, args.optim),
            accumulates_gradients=args.gradient_accumulation_steps > 1,
        )
        if handle.planner is not None and args.label_smoothing_factor:
            handle.planner.head.outside_bytes_per_logit = SMOOTHED_BYTES_PER_LOGIT
        return handle

    def _check(self, handle: Handle, args: TrainingArguments) -> None:
        self._checkup = Checkup(handle.model, handle.anatomy, self.findings)
        handle.installation.changes.append(self._checkup)
        self._checkup.start(vars(args), self._built)

    def _certify(self, trainer: Trainer, step: Callable[[], torch.Tensor]) -> None:
        """Certify the step with the policy off and on, then begin the training anew: it has learned nothing so far."""
        assert self._handle is not None
        model, args, optimizer = self._handle.model, trainer.args, trainer.optimizer
        self.restore()
        put_on = partial(self._put_on, model, args, optimizer)
        self.certificate = certificate_of(trainer, model, step, put_on)
        level = logging.INFO if self.certificate.holds else logging.WARNING
        logger.log(level, "the first step is %s", self.certificate)
        self._begin(model, args, optimizer, trainer)
        self.on_step_begin(args, trainer.state, trainer.control)

    def _diagnosed(self, found: Diagnosis) -> None:
        self.diagnosis = found

    def _backward_done(self) -> None:
        if self._clock is not None:
            self._clock.backward_done()
        if self._checkup is not None:
            self._checkup.backward_done()


def _restore_all(trainer: Trainer) -> None:
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, SelectiveCkpt):
            callback.restore()


def _chosen_policy(policy: str | Mapping[str, Any] | Policy | None, budget: str | float | None) -> Policy:
    if policy is not None and budget is not None:
        raise PolicyError(f"SelectiveCkpt takes a policy or a budget, not both: write policy='budget={budget}'")
    if budget is not None:
        return BudgetPolicy(parse_budget(budget))
    return parse_policy(DEFAULT_POLICY if policy is None else policy)
