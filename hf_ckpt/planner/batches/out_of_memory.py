"""After running out of memory, tighten the plan and try the same batch again, before anybody shrinks the batch.

``Trainer(auto_find_batch_size=True)`` halves the batch on the first out-of-memory error. Standing around
``trainer.training_step`` this comes first: while the plan still keeps something, it plans for less and repeats the
step.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from torch import distributed as dist

if TYPE_CHECKING:
    from collections.abc import Callable

    from .batch_planner import BatchPlanner


class TighteningStep:
    """A training step (forward and backward of one micro-batch) that is repeated under a tighter plan.

    A repeated step is the same step: gradients of the failed try are dropped and the random state is put back. That is
    impossible when gradients of earlier micro-batches are among them, or when other ranks went on: then the error goes
    its way.
    """

    def __init__(self, step: Callable[..., Any], planner: BatchPlanner) -> None:
        self.step = step
        self.planner = planner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What ``step`` returns. Raises the out-of-memory error when there is nothing left to tighten."""
        while True:
            fresh = self._can_repeat()
            state = _random_state(self.planner.model)
            try:
                return self.step(*map(_copied, args), **{name: _copied(value) for name, value in kwargs.items()})
            except Exception as error:
                if not (fresh and should_reduce_batch_size(error) and self.planner.ran_out_of_memory()):
                    raise
            # Outside the handler the failed step's frames, and the activations they hold, are gone.
            self._clean_up(state)

    def _can_repeat(self) -> bool:
        alone = not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)
        return alone and all(p.grad is None for p in self.planner.model.parameters())

    def _clean_up(self, state: tuple[torch.Tensor, torch.Tensor | None]) -> None:
        for parameter in self.planner.model.parameters():
            parameter.grad = None
        gc.collect()
        clear_device_cache()
        host, device = state
        torch.set_rng_state(host)
        if device is not None:
            torch.cuda.set_rng_state(device, next(self.planner.model.parameters()).device)


def _random_state(model: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor | None]:
    device = next(model.parameters()).device
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def _copied(value: Any) -> Any:
    """Trainer takes the labels out of its inputs: a second try needs them again."""
    return dict(value) if isinstance(value, dict) else value
