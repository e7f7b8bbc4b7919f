"""Watches the steps of a run: how large each batch is, what is alive before it, whose graph is whose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_iter

from ..engine.running.graph import is_in_backward
from ..planner.batches.call_size import call_meter
from ..planner.batches.live_forwards import LiveForwards
from .harmless import harmless
from .history import History, Step
from .usage import live_bytes, peak_bytes, read_usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.utils.hooks import RemovableHandle

#: Under this key the node that made an output knows the number of its forward (``Node.metadata``, a dict for users, in
#: torch/csrc/autograd/python_cpp_function.cpp).
FORWARD = "hf_ckpt.forward"


class Watch:
    """Two hooks on the model; nothing of a batch is kept.

    Attributes:
        history: The steps so far.
        start: What the device was used for when the watch began.
        trainable: Trainable parameters then, in numbers.
        forwards: Forwards with gradients so far, in training or not.
        in_forward: Whether a forward began and has not ended.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.device = next(model.parameters()).device
        self.history = History()
        self.start = read_usage(self.device)
        self.trainable = trainable_numbers(model)
        self.forwards = 0
        self.in_forward = False
        self._meter = call_meter(model)
        self._live = LiveForwards()
        self._hooks: tuple[RemovableHandle, ...] = (
            model.register_forward_pre_hook(self._before, with_kwargs=True, prepend=True),
            model.register_forward_hook(self._after),
        )

    def begin_step(self, number: int) -> None:
        """The step of this number begins, and the one before it fitted."""
        with harmless("look at memory before this step"):
            if self.history.current is not None:
                self.history.current.peak = peak_bytes(self.device)
            self.history.begin(Step(number, live_bytes(self.device), first_forward=self.forwards))

    def undo(self) -> None:
        """Watch no longer."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = ()

    def _before(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        step = self.history.current
        if torch.compiler.is_compiling() or step is None or not torch.is_grad_enabled() or is_in_backward():
            return
        self.in_forward = True
        if module.training:
            with harmless("size of this batch"):
                step.sizes.append(self._meter.size(args, kwargs))
                step.most_waiting = max(step.most_waiting, len(self._live.waiting()) + 1)

    def _after(self, module: torch.nn.Module, args: tuple[Any, ...], output: object) -> None:
        if torch.compiler.is_compiling() or not self.in_forward:
            return
        self.in_forward = False
        with harmless("number on this forward's graph"):
            self._number(output)
            if module.training:
                self._live.add(output, 1, 0)
        self.forwards += 1

    def _number(self, output: object) -> None:
        for value in tree_iter(output):
            if isinstance(value, torch.Tensor) and value.grad_fn is not None:
                value.grad_fn.metadata[FORWARD] = self.forwards  # type: ignore[index]  # a property, whatever the stub says


def trainable_numbers(model: torch.nn.Module) -> int:
    """How many numbers of the model are trained."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
