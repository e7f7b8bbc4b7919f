"""The diagnosis of an out-of-memory error in a training loop without a Trainer."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .out_of_memory import Patient, diagnose
from .watch import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from .out_of_memory import Diagnosis


class Diagnosed:
    """Says, when a step of a loop runs out of memory, what held it, what changed and what would have fitted.

    Args:
        model: The model that is trained, with a policy of :func:`hf_ckpt.apply` or without.
        optimizer: Its optimizer, whose state is told apart from other tensors; None: it is counted with them.
        policy: The policy that is on the model, which is then not proposed.

    Attributes:
        diagnosis: What the latest such error came from, as data; None where there was none.

    Example:
        >>> diagnosed = hf_ckpt.Diagnosed(model, optimizer)
        >>> for batch in batches:
        ...     with diagnosed.step():
        ...         model(**batch).loss.backward()
        ...         optimizer.step()
        ...         optimizer.zero_grad()
    """

    def __init__(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None, policy: str = ""
    ) -> None:
        self.diagnosis: Diagnosis | None = None
        self._watch = Watch(model)
        self._patient = Patient(self._watch, lambda: optimizer, _nobody, policy)
        self._steps = 0

    @contextmanager
    def step(self) -> Iterator[None]:
        """Watch one optimizer step, the one inside ``with``.

        Raises:
            Exception: What the step raises; after an out-of-memory error the diagnosis is in the log.
        """
        self._steps += 1
        self._watch.begin_step(self._steps)
        try:
            yield
        except Exception as error:
            self.diagnosis = diagnose(self._patient, error) or self.diagnosis
            raise

    def undo(self) -> None:
        """Take the hooks off the model."""
        self._watch.undo()


def _nobody() -> tuple[Any, ...]:
    return ()
