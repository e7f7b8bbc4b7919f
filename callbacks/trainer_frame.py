"""Reaches what a Trainer callback is not given: the handler that calls it, and the Trainer behind that.

The frames of the call are the only way there. Without them (another Trainer, another handler) everything still works
but what is said at each use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from transformers.trainer_callback import CallbackHandler

if TYPE_CHECKING:
    from types import FrameType

    from transformers import TrainerCallback

T = TypeVar("T")


def calling(kind: type[T], frame: FrameType | None) -> T | None:
    """The nearest object of this class whose method is on the stack above ``frame``, or None."""
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, kind):
            return owner
        frame = frame.f_back
    return None


def move_to_front(callback: TrainerCallback, frame: FrameType | None) -> None:
    """Move ``callback`` in front of the reporters, so that its metrics are in the logs they are given.

    Trainer puts user callbacks behind wandb, TensorBoard and the printer, all of which read ``logs`` in ``on_log``. If
    it cannot be moved, the metrics still reach ``state.log_history`` and every later callback.
    """
    handler = calling(CallbackHandler, frame)
    if handler is not None and callback in handler.callbacks:
        handler.callbacks.remove(callback)
        handler.callbacks.insert(0, callback)
