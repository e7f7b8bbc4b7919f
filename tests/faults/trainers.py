"""Faults in a real Trainer with ``SelectiveCkpt``: in ops, in the user's functions, in the clock."""

from __future__ import annotations

import copy
import itertools
import logging
import tempfile
import time
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from hf_ckpt import SelectiveCkpt

from ..models import VOCABULARY, build
from ..module_state import changed, model_state, thread_state
from .injectors import AtOp, AtUse, out_of_memory
from .outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from torch import nn

NAMES = ("llama", "gpt2", "llama-lora")
POLICIES = ("full", "balanced", "budget=0.5", "budget=auto", "segments(2)")
ERRORS: tuple[Callable[[], BaseException], ...] = (
    out_of_memory,
    KeyboardInterrupt,
    lambda: OSError(28, "No space left on device"),
)
EVENTS = (
    "train_begin", "epoch_begin", "step_begin", "substep_end", "pre_optimizer_step", "optimizer_step", "step_end",
    "log", "save", "evaluate", "epoch_end", "train_end",
)  # fmt: skip


def in_the_trainers_ops(rng: Random) -> Outcome:
    """At any op of a training: steps, optimizer, clipping, evaluation."""
    name, policy, error = rng.choice(NAMES), rng.choice(POLICIES), rng.choice(ERRORS)()
    injector = AtOp(rng.randrange(_ops(name, policy)), error)
    outcome = Outcome(f"{type(error).__name__} at op {injector.at} of a training of {name} under {policy}")
    return _judge(outcome, name, policy, injector, Trained(around=injector))


def in_a_function_of_the_user(rng: Random) -> Outcome:
    """In a callback, the optimizer, the scheduler, the data, the loss, the metrics or a handler of logs."""
    name, policy, error = rng.choice(NAMES), rng.choice(POLICIES), rng.choice(ERRORS)()
    place = rng.choice((*EVENTS, "optimizer", "scheduler", "collator", "loss", "metrics", "logging"))
    raising = AtUse(rng.randrange(3), error)
    outcome = Outcome(f"{type(error).__name__} in use {raising.at} of {place}, {name} under {policy}")
    return _judge(outcome, name, policy, raising, Trained(place, raising))


def under_a_jumping_clock(rng: Random) -> Outcome:
    """Every clock of the process goes back, stands still and leaps: the training is the same to the last bit."""
    name, policy = rng.choice(NAMES), rng.choice(POLICIES)
    outcome = Outcome(f"{name} under {policy}")
    with _jumping_clocks(rng):
        trainer = Trained().run(_settled(name), SelectiveCkpt(policy))
    outcome.check(_same_weights(trainer.model, _twin(name)), "another training than without a policy")
    return outcome


class Trained:
    """One training of two steps of two micro-batches; ``raising`` stands at ``place`` in it."""

    def __init__(self, place: str = "", raising: AtUse | None = None, around: Any = None) -> None:
        self.place = place
        self.raising = raising
        self.around = around
        self.trainer: Trainer | None = None

    def run(self, model: nn.Module, *callbacks: TrainerCallback) -> Trainer:
        """Train, and return the Trainer; :attr:`trainer` is there when the training raised too."""
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            trainer = self.trainer = Trainer(model, _arguments(folder), **self._options(), callbacks=list(callbacks))
            trainer.remove_callback(PrinterCallback)
            self._arm(trainer, stack)
            if self.around is not None:
                stack.enter_context(self.around)
            trainer.train()
        return trainer

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"train_dataset": _dataset(8), "eval_dataset": _dataset(2)}
        if self.place == "collator":
            options["data_collator"] = AtUse(self.raising.at, self.raising.error, _collated)
            self.raising = options["data_collator"]
        if self.place == "metrics":
            self.raising.inner = lambda _: {}
            options["compute_metrics"] = self.raising
        if self.place == "loss":
            self.raising.inner = lambda outputs, labels, **_: outputs.loss
            options["compute_loss_func"] = None
        return options

    def _arm(self, trainer: Trainer, stack: ExitStack) -> None:
        raising = self.raising
        if self.place in EVENTS:
            trainer.add_callback(_callback(self.place, raising))
        if self.place == "loss":
            raising.inner, trainer.compute_loss = trainer.compute_loss, raising
        if self.place in ("optimizer", "scheduler"):
            create, made = trainer.create_optimizer_and_scheduler, self.place

            def created(*args: Any, **kwargs: Any) -> None:
                create(*args, **kwargs)
                owner = trainer.optimizer if made == "optimizer" else trainer.lr_scheduler
                raising.inner, owner.step = owner.step, raising

            trainer.create_optimizer_and_scheduler = created
        if self.place == "logging":
            log, handler = logging.getLogger("hf_ckpt"), logging.Handler()
            handler.emit = raising
            level = log.level
            log.setLevel(logging.INFO)
            log.addHandler(handler)
            stack.callback(log.removeHandler, handler)
            stack.callback(log.setLevel, level)


def _callback(event: str, raising: AtUse) -> TrainerCallback:
    callback = type("Raising", (TrainerCallback,), {f"on_{event}": lambda *_, **__: raising()})
    return callback()


def _arguments(folder: str) -> TrainingArguments:
    return TrainingArguments(
        folder, per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=2, logging_steps=1,
        eval_strategy="steps", eval_steps=1, use_cpu=True, report_to="none", disable_tqdm=True, save_strategy="steps",
        save_steps=2, save_only_model=True, seed=1, log_level="error",
    )  # fmt: skip


def _dataset(count: int) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(5)
    blocks = torch.randint(0, VOCABULARY, (count, 12), generator=generator)
    return [{"input_ids": block, "labels": block} for block in blocks]


def _collated(examples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {key: torch.stack([example[key] for example in examples]) for key in examples[0]}


@cache
def _trained_before(name: str) -> nn.Module:
    model = build(name.removesuffix("-lora"), lora=name.endswith("-lora"))
    Trained().run(model)
    return model


def _settled(name: str) -> nn.Module:
    """A model that a Trainer had before: it sets attributes of its own, which are not ours to take back."""
    return copy.deepcopy(_trained_before(name))


@cache
def _twin(name: str) -> nn.Module:
    """What an untouched training makes of it."""
    return Trained().run(_settled(name)).model


@cache
def _ops(name: str, policy: str) -> int:
    counter = AtOp(None, RuntimeError())
    Trained(around=counter).run(_settled(name), SelectiveCkpt(policy))
    return counter.seen


def _judge(outcome: Outcome, name: str, policy: str, injector: AtOp | AtUse, training: Trained) -> Outcome:
    twin = _twin(name)
    model, callback = _settled(name), SelectiveCkpt(policy)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    # A Trainer leaves its own traces on every model (its loss arguments, the mode): what it does by itself is no fault.
    before, thread = model_state(model), thread_state()
    raised = _raised(lambda: training.run(model, callback))
    outcome.met = training.raising.met if training.raising is not None else injector.met
    outcome.check(raised is injector.error or raised is None, f"raised {raised!r}")
    outcome.same_state(thread, thread_state(), "after the fault")
    outcome.check(not (left := changed(before, model_state(model))), f"the training left {left[:3]}")
    outcome.check(not (left := _left_on(training.trainer)), f"the training left {left} on the Trainer")
    if raised is None:  # a batch that fits under a tighter plan is tried again
        outcome.check(_same_weights(model, twin), "the training differs from that of an untouched model")
    model.load_state_dict(weights)
    again = Trained().run(model, SelectiveCkpt(policy))
    outcome.check(_same_weights(again.model, twin), "the next training differs from that of an untouched model")
    return outcome


def _raised(run: Callable[[], Any]) -> BaseException | None:
    try:
        run()
    except BaseException as error:
        return error.with_traceback(None)
    return None


def _left_on(trainer: Trainer | None) -> list[str]:
    owners = [owner for owner in (trainer, getattr(trainer, "optimizer", None)) if owner is not None]
    return [
        name for owner in owners for name, value in vars(owner).items()
        if type(value).__module__.startswith("hf_ckpt") and name != "train"
    ]  # fmt: skip


def _same_weights(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


@contextmanager
def _jumping_clocks(rng: Random) -> Iterator[None]:
    """The clocks of ``time``, each a walk of its own with steps back, none, and leaps of years."""
    with ExitStack() as stack:
        for name in ("time", "perf_counter", "monotonic", "process_time"):
            start = getattr(time, name)()
            jumps = (rng.choice((0.0, 0.0, 1e-4, -3600.0, 1e9, -1e9)) for _ in itertools.count())
            walk = itertools.accumulate(jumps, initial=start)
            stack.enter_context(patch.object(time, name, walk.__next__))
        yield
