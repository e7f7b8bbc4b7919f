"""Looks at a training that checkpoints by itself, and changes nothing about it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from ..anatomy import read_anatomy
from ..certificate.first_step import certificate_of, certify_with
from ..doctor.checkup import Checkup
from ..doctor.start_facts import model_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from transformers import Trainer

    from .._undo import Change
    from ..certificate.certificate import Certificate
    from ..doctor.check import Trouble
    from ..doctor.out_of_memory import Diagnosis
    from ..measuring.report import Report


class AsItIs(TrainerCallback):  # type: ignore[misc]
    """The doctor and the certificate of SelectiveCkpt, without a policy."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.report: Report | None = None
        self.certificate: Certificate | None = None
        self.diagnosis: Diagnosis | None = None
        self._built = model_settings(trainer.model)
        self._checkup: Checkup | None = None
        self._changes: list[Change] = []

    @property
    def findings(self) -> list[Trouble]:
        """What the doctor found."""
        return [] if self._checkup is None else self._checkup.found

    @property
    def checkpoints(self) -> int:
        """How many calls of torch's checkpoint a forward made."""
        return 0 if self._checkup is None else self._checkup.checkpoints

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin to look."""
        model = kwargs["model"]
        self._checkup = Checkup(model, read_anatomy(model))
        self._changes = [self._checkup, certify_with(self.trainer, partial(self._certify, model))]
        self._checkup.start(vars(args), self._built)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step begins."""
        if self._checkup is not None:
            self._checkup.begin_step()

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The backward of one accumulated micro-batch is over."""
        if self._checkup is not None:
            self._checkup.backward_done()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The backward of the last micro-batch is over."""
        if self._checkup is not None:
            self._checkup.backward_done()
            self._checkup.end_step()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave the training as it was."""
        if self._checkup is not None:
            self._checkup.end()
        while self._changes:
            self._changes.pop().undo()

    def _certify(self, model: torch.nn.Module, step: Callable[[], torch.Tensor]) -> None:
        self._changes.pop().undo()
        self.certificate = certificate_of(self.trainer, model, step, None)
        if self._checkup is not None:
            self._checkup.begin_step_again()
