"""Takes a policy off when the training that it serves ends by an exception."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transformers import Trainer

from hf_ckpt._undo import AttributeChange
from hf_ckpt.planner.batches.out_of_memory import TighteningStep

from .calling_trainer import Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from hf_ckpt.handle import Handle


#: What a guarded ``train`` has, and no other.
_GUARD = "_hf_ckpt_guard"


def restore_after_trainings(restore: Callable[[Trainer], None]) -> None:
    """From now on, call ``restore`` with every Trainer whose ``train()`` ends by an exception, wherever it comes from.

    No event of a callback follows one. The class is changed, once for all Trainers: a method set on a Trainer would
    keep it alive, and a copy of the Trainer would train the original.
    """
    if hasattr(Trainer.train, _GUARD):
        return
    train: Callable[..., Any] = Trainer.train

    @functools.wraps(train)
    def guarded(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        try:
            return train(self, *args, **kwargs)
        except BaseException:
            restore(self)
            raise

    setattr(guarded, _GUARD, True)
    Trainer.train = guarded


def restore_with(trainer: Trainer, handle: Handle) -> None:
    """Take the policy off when a step of this training raises, or later once the training no longer runs."""
    step: Callable[..., Any] = trainer.training_step
    if handle.planner is not None:
        # Under a budget, plan for less before `auto_find_batch_size` shrinks the batch.
        step = TighteningStep(step, handle.planner)
    handle.installation.changes.append(AttributeChange(trainer, "training_step", GuardedStep(step, handle)))
    handle.in_use = Run.of(trainer)


@dataclass(frozen=True, slots=True)
class GuardedStep:
    """Stands as ``trainer.training_step``.

    No event of a callback follows an exception, an interrupt from the keyboard least of all, and after one the measured
    step's saved-tensor hooks would stay open. ``auto_find_batch_size`` begins training anew, and the policy with it.
    """

    step: Callable[..., Any]
    handle: Handle

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What ``step`` returns; whatever it raises, once the model is restored."""
        try:
            return self.step(*args, **kwargs)
        except BaseException:
            self.handle.restore()
            raise
