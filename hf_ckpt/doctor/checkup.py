"""Observes the first steps of a training for the checks, and says what they found, each thing once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from .check import checks
from .facts import StepFacts, StepsFacts
from .harmless import harmless
from .observers.checkpoint_calls import CheckpointCalls, has_gradient
from .observers.forwards import Forwards
from .observers.generations import Generations
from .observers.starved import PATIENCE, Starved
from .start_facts import read_start

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import torch

    from ..anatomy import Anatomy
    from .check import Trouble
    from .facts import CallFacts, ModelSettings
    from .observers.checkpoint_calls import NotedCall

logger = logging.getLogger("hf_ckpt.doctor")

#: Steps that are observed: the first one may be a policy's first look at the model.
STEPS = 3


class Checkup:
    """Looks at a training before its first step, and at each backward of its first steps.

    Attributes:
        found: What was found so far, what was ``known`` before it looked among it.
        checkpoints: The most calls of torch's checkpoint that a forward made, a policy's own not counted.
    """

    def __init__(self, model: torch.nn.Module, anatomy: Anatomy, known: Iterable[Trouble] = ()) -> None:
        self.model = model
        self.anatomy = anatomy
        self.found: list[Trouble] = [*known]
        self.checkpoints = 0
        self._calls = CheckpointCalls()
        self._generations = Generations()
        self._forwards = Forwards(model, anatomy)
        self._starved = Starved(model)
        self._of_step: list[NotedCall] = []
        self._steps = 0

    def start(self, settings: Mapping[str, Any], built: ModelSettings) -> None:
        """Judge the training as it is before its first step.

        Args:
            settings: Its TrainingArguments by name.
            built: What the model was told before its Trainer was built.
        """
        with harmless("check of this training before its first step"):
            facts = read_start(self.model, self.anatomy, settings, built)
            self._tell(trouble for check in checks() for trouble in check.at_start(facts))

    def begin_step(self) -> None:
        """A step begins."""
        self._steps += 1
        if self._steps <= STEPS:
            self._observe()
        else:
            self._leave()

    def begin_step_again(self) -> None:
        """Forget what ran in this step so far: it was no part of the training."""
        if self._steps <= STEPS:
            self._observe()

    def backward_done(self) -> None:
        """The backward of the latest forward is over, and no optimizer has stepped since."""
        if not (self._forwards.learned.forwards or self._calls.found):
            return
        with harmless("check of this step"):
            facts = self._facts(self._calls.take())
            self._tell(trouble for check in checks() for trouble in check.after_backward(facts))
        self._forwards.forget()

    def end_step(self) -> None:
        """The last backward of the step is over: whatever raises from here on finds torch as it was."""
        self._stop_notes()
        with harmless("look at the gradients of this step"):
            self._look_at_gradients()

    def end(self) -> None:
        """The last step is over."""
        with harmless("look back at the steps"):
            self._tell_of(self._starved.all())

    def undo(self) -> None:
        """Observe no longer, for good."""
        self._steps = max(self._steps, PATIENCE)
        self._leave()

    def _observe(self) -> None:
        self._of_step = []
        self._calls.start(self.model)
        self._generations.start(self.model)
        self._forwards.start()

    def _leave(self) -> None:
        self._stop_notes()
        self._forwards.stop()

    def _stop_notes(self) -> None:
        self._calls.stop()
        self._generations.stop()
        self._forwards.switches.stop()

    def _facts(self, calls: list[NotedCall]) -> StepFacts:
        self._of_step += calls
        self.checkpoints = max(self.checkpoints, len(calls))
        learned = self._forwards.learned
        return StepFacts(
            calls=tuple(call.after_backward() for call in calls),
            sleeping=tuple(learned.sleeping),
            sleeping_at=learned.sleeping_at,
            rewritten=tuple(learned.rewritten),
            switched=tuple(learned.switched),
            switched_at=learned.switched_at,
            readapted=tuple(learned.readapted),
            readapted_at=learned.readapted_at,
            generated=tuple(self._generations.places),
            learns=self._learns(),
        )

    def _learns(self) -> bool:
        return any(map(has_gradient, self.model.parameters()))

    def _look_at_gradients(self) -> None:
        """Follow parameters without a gradient, for longer than the steps that are observed."""
        if self._steps <= STEPS:
            if self._learns():
                self._starved.note(self._of_step)
            if self._steps == STEPS:
                self._tell_of(self._starved.cut_off())
        elif self._steps <= PATIENCE:
            self._starved.look_again()
            if self._steps == PATIENCE:
                self._tell_of(self._starved.all())

    def _tell_of(self, starved: tuple[CallFacts, ...]) -> None:
        facts = StepsFacts(starved)
        self._tell(trouble for check in checks() for trouble in check.after_steps(facts))

    def _tell(self, troubles: Iterable[Trouble]) -> None:
        for trouble in troubles:
            if trouble not in self.found:
                self.found.append(trouble)
                logger.warning("%s", trouble)
