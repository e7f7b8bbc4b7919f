"""Diagnoses an out-of-memory error of a Trainer where it comes up, and lets it go its way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hf_ckpt._undo import AttributeChange
from hf_ckpt.doctor.evidence import Phase
from hf_ckpt.doctor.out_of_memory import Patient, diagnose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from transformers import Trainer

    from hf_ckpt.doctor.out_of_memory import Diagnosis
    from hf_ckpt.doctor.watch import Watch
    from hf_ckpt.handle import Handle


def diagnose_with(trainer: Trainer, handle: Handle, watch: Watch, tell: Callable[[Diagnosis], None]) -> Patient:
    """Diagnose what training steps, the optimizer's steps and evaluations of this training raise, until restored.

    Args:
        trainer: The Trainer, changed in place until `handle` is restored.
        handle: The policy on its model.
        watch: What is noted of every step.
        tell: Called with each diagnosis.
    """
    patient = Patient(watch, lambda: trainer.optimizer, lambda: _owners(trainer), str(handle.resolved.policy))
    changes = handle.installation.changes
    for owner, name, phase in _calls(trainer):
        call = DiagnosedCall(getattr(owner, name), patient, phase, tell)
        changes.append(AttributeChange(owner, name, call))
    return patient


def _calls(trainer: Trainer) -> Iterator[tuple[Any, str, Phase | None]]:
    yield trainer, "training_step", None
    yield trainer, "evaluation_loop", Phase.EVALUATION
    if trainer.optimizer is not None:
        yield trainer.optimizer, "step", Phase.OPTIMIZER


def _owners(trainer: Trainer) -> list[object]:
    return [trainer, *trainer.callback_handler.callbacks]


@dataclass(frozen=True, slots=True)
class DiagnosedCall:
    """Stands as a method of the Trainer or of its optimizer; ``phase`` is None where forward or backward may run."""

    call: Callable[..., Any]
    patient: Patient
    phase: Phase | None
    tell: Callable[[Diagnosis], None]

    def __getattr__(self, name: str) -> Any:
        # A scheduler marks the method of the optimizer that it stands around (torch/optim/lr_scheduler.py).
        if name.startswith("__") or name == "call":
            raise AttributeError(name)
        return getattr(self.call, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What ``call`` returns; whatever it raises, as it raises it."""
        try:
            return self.call(*args, **kwargs)
        except Exception as error:
            found = diagnose(self.patient, error, self.phase)
            if found is not None:
                self.tell(found)
            raise
