"""Puts the callbacks into a Trainer that a script is about to train, and reads from them what they saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import SelectiveCkpt
from ..compat.checkpointing import checkpoints_itself
from .as_it_is import AsItIs
from .examination import Examination
from .stops_early import StopsEarly

if TYPE_CHECKING:
    from transformers import Trainer

    from ..policy import Policy

#: The policy of a script that has none: it shows that recomputing works on the model.
DEFAULT_POLICY = "budget=0.5"


@dataclass(frozen=True, slots=True)
class Examined:
    """A Trainer with the callbacks on it."""

    trainer: Trainer
    callback: SelectiveCkpt | AsItIs
    stops: StopsEarly
    policy: str

    def read(self) -> Examination:
        """What they saw."""
        seen = self.callback
        return Examination(
            trainer=type(self.trainer).__name__,
            ran_under=self.policy,
            steps=self.stops.steps,
            report=seen.report,
            checkpoints=seen.checkpoints if isinstance(seen, AsItIs) else None,
            certificate=seen.certificate,
            findings=seen.findings,
            diagnosis=seen.diagnosis,
        )


def put_in(trainer: Trainer, policy: Policy | None) -> Examined:
    """Let a callback with every check on be in the Trainer.

    Args:
        trainer: A Trainer that is about to train.
        policy: The policy instead of what the script has; None: its SelectiveCkpt, or its own checkpointing, or for a
            script without either the default.

    Returns:
        What to read from once it has trained.
    """
    callback, words = _callback(trainer, policy)
    stops = StopsEarly()
    trainer.add_callback(stops)
    return Examined(trainer, callback, stops, words)


def _callback(trainer: Trainer, policy: Policy | None) -> tuple[SelectiveCkpt | AsItIs, str]:
    own = next((c for c in trainer.callback_handler.callbacks if isinstance(c, SelectiveCkpt)), None)
    if own is not None and policy is None:
        own.doctor, own.verify = True, "first_step"
        return own, f"policy {own.policy}, the script's own"
    if own is None and policy is None and _checkpoints(trainer):
        as_it_is = AsItIs(trainer)
        trainer.add_callback(as_it_is)
        return as_it_is, "the script's own activation checkpointing (--policy puts one in)"
    if own is not None:
        trainer.remove_callback(own)
    callback = SelectiveCkpt(policy or DEFAULT_POLICY, doctor=True, verify="first_step")
    trainer.add_callback(callback)
    callback.on_init_end(trainer.args, trainer.state, trainer.control, model=trainer.model)
    return callback, f"policy {callback.policy}, put in"


def _checkpoints(trainer: Trainer) -> bool:
    args = trainer.args
    asked = getattr(args, "activation_checkpointing", False) or getattr(args, "gradient_checkpointing", False)
    by_fsdp = str((args.fsdp_config or {}).get("activation_checkpointing", "false")).lower() == "true"
    return bool(asked) or by_fsdp or checkpoints_itself(trainer.model)
