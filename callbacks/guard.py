"""Takes a policy off when the training step it serves ends by an exception."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from hf_ckpt.handle import Handle


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
