"""Reaches what a Trainer callback is not given: the handler that calls it, and the Trainer behind that.

The frames of the call are the only way there. Without them (another Trainer, another handler) everything still works
but what is said at each use.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar
from weakref import ReferenceType, ref

from transformers.trainer_callback import CallbackHandler

from hf_ckpt.errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from transformers import Trainer, TrainerCallback, TrainerState

T = TypeVar("T")


def calling(kind: type[T], frame: FrameType | None) -> T | None:
    """The nearest object of this class whose method is on the stack above ``frame``, or None."""
    return next((owner for owner in _owners(frame) if isinstance(owner, kind)), None)


@dataclass(frozen=True, slots=True)
class Run:
    """One ``train()`` of a Trainer; calling it tells whether that still runs.

    A Trainer takes a new state for every run, and one of its methods is on a stack as long as the run lasts. Both are
    referred to weakly: a run that failed keeps nothing alive.
    """

    trainer: ReferenceType[Trainer]
    state: ReferenceType[TrainerState]

    @classmethod
    def of(cls, trainer: Trainer) -> Self:
        """The run that the Trainer is in."""
        return cls(ref(trainer), ref(trainer.state))

    def __call__(self) -> bool:
        """Whether it is still on the stack of some thread."""
        trainer = self.trainer()
        if trainer is None or trainer.state is not self.state():
            return False
        return any(owner is trainer for frame in sys._current_frames().values() for owner in _owners(frame))


def _owners(frame: FrameType | None) -> Iterator[object]:
    """The objects whose methods are on the stack from ``frame`` up, the nearest first; None for a plain function."""
    while frame is not None:
        yield frame.f_locals.get("self")
        frame = frame.f_back


def move_to_front(callback: TrainerCallback, frame: FrameType | None) -> None:
    """Move ``callback`` in front of the reporters, so that its metrics are in the logs they are given.

    Trainer puts user callbacks behind wandb, TensorBoard and the printer, all of which read ``logs`` in ``on_log``. If
    it cannot be moved, the metrics still reach ``state.log_history`` and every later callback.
    """
    handler = calling(CallbackHandler, frame)
    if handler is not None and callback in handler.callbacks:
        handler.callbacks.remove(callback)
        handler.callbacks.insert(0, callback)


def check_alone(callback: TrainerCallback, frame: FrameType | None) -> None:
    """Raise ConflictError when the Trainer has two callbacks of this kind: each would recompute the same layers."""
    handler = calling(CallbackHandler, frame)
    same = [other for other in handler.callbacks if type(other) is type(callback)] if handler is not None else []
    if len(same) > 1:
        policies = [str(getattr(other, "policy", "")) for other in same]
        raise ConflictError(
            f"this Trainer has {len(same)} {type(callback).__name__} callbacks, with the policies "
            f"{' and '.join(f'`{policy}`' for policy in policies)}: keep one, or write one policy that adds them up, "
            f"`{'+'.join(policies)}`"
        )
