"""Observes the first steps of a training for the checks, and says what they found, each thing once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

from ..compat.adapters import active_adapters
from ..engine.running.graph import is_in_backward
from .check import checks
from .checkpoint_calls import CheckpointCalls, has_gradient
from .facts import StepFacts
from .generations import Generations
from .harmless import harmless
from .start_facts import read_start

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch.utils.hooks import RemovableHandle

    from ..anatomy import Anatomy
    from .check import Trouble
    from .facts import ModelSettings

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
        self._steps = 0
        self._modes: dict[str, bool] = {}
        self._adapters: dict[str, object] = {}
        self._versions: dict[str, int] = {}
        self._sleeping: tuple[str, ...] = ()
        self._hook: RemovableHandle | None = None

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
        if self._steps > STEPS:
            self.undo()
            return
        self._calls.start(self.model)
        self._generations.start(self.model)
        if self._hook is None:
            self._hook = self.model.register_forward_hook(self._after_forward)

    def begin_step_again(self) -> None:
        """Forget what ran in this step so far: it was no part of the training."""
        if self._hook is not None:
            self._modes = {}
            self._calls.start(self.model)
            self._generations.start(self.model)

    def backward_done(self) -> None:
        """The backward of the latest forward is over, and no optimizer has stepped since."""
        if self._hook is None or not self._modes:
            return
        with harmless("check of this step"):
            self.checkpoints = max(self.checkpoints, len(self._calls.found))
            facts = StepFacts(
                self._calls.facts(),
                self._sleeping,
                self._rewritten(),
                self._switched(),
                self._readapted(),
                tuple(self._generations.places),
                any(map(has_gradient, self.model.parameters())),
            )
            self._tell(trouble for check in checks() for trouble in check.after_backward(facts))
        self._modes = {}
        self._calls.found.clear()

    def end_step(self) -> None:
        """The last backward of the step is over: whatever raises from here on finds torch as it was."""
        self._calls.stop()
        self._generations.stop()

    def undo(self) -> None:
        """Observe no longer, for good."""
        self._steps = STEPS
        self.end_step()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _after_forward(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or not (module.training and torch.is_grad_enabled()):
            return
        if is_in_backward():
            return
        with harmless("look at this forward"):
            self._look()

    def _look(self) -> None:
        self._versions = {name: buffer._version for name, buffer in self.model.named_buffers()}
        self._sleeping = tuple(
            layer.info.name
            for layer in self.anatomy.layers
            if not layer.module.training and any(p.requires_grad for p in layer.module.parameters())
        )
        self._modes = {name: inner.training for name, inner in self.model.named_modules()}
        self._adapters = active_adapters(self.model)

    def _rewritten(self) -> tuple[str, ...]:
        buffers = self.model.named_buffers()
        return tuple(name for name, buffer in buffers if self._versions.get(name, buffer._version) != buffer._version)

    def _switched(self) -> tuple[str, ...]:
        """The outermost modules whose mode is another one now."""
        modules = self.model.named_modules()
        changed = [name for name, module in modules if self._modes.get(name, module.training) != module.training]
        inside = {name for name in changed for other in changed if other != name and _is_in(name, other)}
        return tuple(name or "the model" for name in changed if name not in inside)

    def _readapted(self) -> tuple[str, ...]:
        """The modules that run other adapters now."""
        now = active_adapters(self.model)
        return tuple(name for name, before in self._adapters.items() if now.get(name) != before)

    def _tell(self, troubles: Iterable[Trouble]) -> None:
        for trouble in troubles:
            if trouble not in self.found:
                self.found.append(trouble)
                logger.warning("%s", trouble)


def _is_in(name: str, other: str) -> bool:
    return not other or name.startswith(f"{other}.")
