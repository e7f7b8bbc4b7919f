"""Observes the first steps of a training for the checks, and says what they found, each thing once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

from ..compat.checkpointing import lost_its_switch
from ..engine.running.graph import is_in_backward
from .check import checks
from .checkpoint_calls import CheckpointCalls
from .facts import Patched, StartFacts, StepFacts
from .harmless import harmless
from .place import Place, is_users

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch.utils.hooks import RemovableHandle

    from ..anatomy import Anatomy
    from .check import Trouble

logger = logging.getLogger("hf_ckpt.doctor")

#: Steps that are observed: the first one may be a policy's first look at the model.
STEPS = 3


class Checkup:
    """Looks at a training before its first step, and at each backward of its first steps.

    Attributes:
        found: What was found so far.
    """

    def __init__(self, model: torch.nn.Module, anatomy: Anatomy) -> None:
        self.model = model
        self.anatomy = anatomy
        self.found: list[Trouble] = []
        self._calls = CheckpointCalls()
        self._steps = 0
        self._modes: dict[str, bool] = {}
        self._versions: dict[str, int] = {}
        self._sleeping: tuple[str, ...] = ()
        self._hook: RemovableHandle | None = None

    def start(self, settings: Mapping[str, Any]) -> None:
        """Judge the training as it is before its first step; ``settings`` are its TrainingArguments by name."""
        with harmless("check of this training before its first step"):
            self._tell(trouble for check in checks() for trouble in check.at_start(self._before_training(settings)))

    def _before_training(self, settings: Mapping[str, Any]) -> StartFacts:
        return StartFacts(
            settings,
            _patched(layer.module for layer in self.anatomy.layers),
            sum(parameter.requires_grad for parameter in self.model.parameters()),
            any(hasattr(module, "peft_config") for module in self.model.modules()),
        )

    def begin_step(self) -> None:
        """A step begins."""
        self._steps += 1
        if self._steps > STEPS:
            self.undo()
            return
        self._calls.start()
        if self._hook is None:
            self._hook = self.model.register_forward_hook(self._after_forward)

    def backward_done(self) -> None:
        """The backward of the latest forward is over, and no optimizer has stepped since."""
        if self._hook is None or not self._modes:
            return
        with harmless("check of this step"):
            facts = StepFacts(self._calls.facts(), self._sleeping, self._rewritten(), self._switched())
            self._tell(trouble for check in checks() for trouble in check.after_backward(facts))
        self._modes = {}
        self._calls.found.clear()

    def end_step(self) -> None:
        """The last backward of the step is over: whatever raises from here on finds torch as it was."""
        self._calls.stop()

    def undo(self) -> None:
        """Observe no longer, for good."""
        self._steps = STEPS
        self._calls.stop()
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

    def _rewritten(self) -> tuple[str, ...]:
        buffers = self.model.named_buffers()
        return tuple(name for name, buffer in buffers if self._versions.get(name, buffer._version) != buffer._version)

    def _switched(self) -> tuple[str, ...]:
        """The outermost modules whose mode is another one now."""
        modules = self.model.named_modules()
        changed = [name for name, module in modules if self._modes.get(name, module.training) != module.training]
        inside = {name for name in changed for other in changed if other != name and _is_in(name, other)}
        return tuple(name or "the model" for name in changed if name not in inside)

    def _tell(self, troubles: Iterable[Trouble]) -> None:
        for trouble in troubles:
            if trouble not in self.found:
                self.found.append(trouble)
                logger.warning("%s", trouble)


def _is_in(name: str, other: str) -> bool:
    return not other or name.startswith(f"{other}.")


def _patched(layers: Iterable[torch.nn.Module]) -> tuple[Patched, ...]:
    classes = {type(layer): layer for layer in layers if lost_its_switch(layer)}
    return tuple(Patched(kind.__name__, _place_of(kind.forward)) for kind in classes)


def _place_of(function: Any) -> Place | None:
    code = getattr(function, "__code__", None)
    return Place(code.co_filename, code.co_firstlineno) if code is not None and is_users(code.co_filename) else None
