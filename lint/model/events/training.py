"""What a training loop does with a model: backward passes, train and eval mode, freezing, generation."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes
from ...facts.values import Absent, Attr, Choice, Element, Result, Value, equals
from .event import CallEvent, Event, WriteEvent

if TYPE_CHECKING:
    from collections.abc import Iterator


class Backward(CallEvent):
    """A backward pass: ``loss.backward()``, ``accelerator.backward(loss)``, ``torch.autograd.backward(loss)``."""

    __slots__ = ()
    words = ("backward",)


class AutogradGrad(CallEvent):
    """``torch.autograd.grad(outputs, inputs)``."""

    __slots__ = ()
    words = (("autograd", "grad"),)


class Detach(CallEvent):
    """``hidden.detach()``: what follows gives no gradient to what came before."""

    __slots__ = ()
    words = ("detach", ".data", "torch.tensor(", "torch.as_tensor(", "torch.from_numpy(")

    @property
    def source(self) -> Value:
        """What is cut off."""
        return self.call.receiver


class GradientHook(CallEvent):
    """``parameter.register_post_accumulate_grad_hook(hook)``: runs each time a gradient was added up."""

    __slots__ = ()
    words = ("register_post_accumulate_grad_hook",)

    @property
    def hook(self) -> Value:
        """What runs then."""
        return self.call.argument(0, "hook")


class NamedParts(CallEvent):
    """``model.named_parameters()`` or ``model.named_modules()``."""

    __slots__ = ()
    words = ("named_parameters", "named_modules")

    @property
    def module(self) -> Value:
        """The module whose parts they name."""
        return self.call.receiver


class ModeChange(CallEvent):
    """Something that may switch a model between train and eval mode; done to the model or to its Trainer."""

    __slots__ = ()

    @property
    def receiver(self) -> Value:
        """The model, or its Trainer."""
        return self.call.receiver


class ModeSwitch(ModeChange):
    """``model.train()`` or ``model.eval()``; a Trainer's ``train`` too, which leaves its model in train mode."""

    __slots__ = ()

    @property
    def on(self) -> bool | None:
        """Whether it goes into train mode."""
        raise NotImplementedError


class TrainSwitch(ModeSwitch):
    """``model.train()``, ``model.train(False)``."""

    __slots__ = ()
    words = (".train(",)

    @property
    def on(self) -> bool | None:
        """Whether it goes into train mode."""
        mode = self.call.argument(0, "mode")
        return True if isinstance(mode, Absent) else equals(mode, True)


class EvalSwitch(ModeSwitch):
    """``model.eval()``."""

    __slots__ = ()
    words = (".eval(",)

    @property
    def on(self) -> bool | None:
        """Never."""
        return False


class Evaluation(ModeChange):
    """``trainer.evaluate()`` or ``trainer.predict()``: leaves the model of the Trainer in eval mode."""

    __slots__ = ()


class Generate(CallEvent):
    """``model.generate(...)``."""

    __slots__ = ()
    words = (".generate(",)

    @property
    def model(self) -> Value:
        """The model."""
        return self.call.receiver


class TimmEnable(CallEvent):
    """``model.set_grad_checkpointing()`` of a model of timm."""

    __slots__ = ()
    words = ("set_grad_checkpointing",)

    @property
    def model(self) -> Value:
        """The model."""
        return self.call.receiver

    @property
    def is_on(self) -> bool:
        """Whether it certainly switches checkpointing on."""
        enable = self.call.argument(0, "enable")
        return isinstance(enable, Absent) or equals(enable, True) is True


class GradientSwitch(Event):
    """Gradients of a module, a parameter or a tensor are switched on or off."""

    __slots__ = ()
    words = ("requires_grad",)

    @property
    def target(self) -> Value:
        """The module, parameter or tensor."""
        raise NotImplementedError

    @property
    def value(self) -> Value:
        """What it is switched to; ABSENT for the default of the method, on."""
        raise NotImplementedError

    @property
    def freezes(self) -> bool:
        """Whether it certainly switches them off."""
        return equals(self.value, False) is True

    @property
    def is_partial(self) -> bool:
        """Whether it goes through a slice of the layers only: `for layer in model.layers[:4]`."""
        return next(self._slices(), None) is not None

    @property
    def leading(self) -> int:
        """How many of the first layers it freezes: 2 for `for layer in model.layers[:2]`; 0 for another choice."""
        for part in self._slices() if self.freezes else ():
            match part:
                case ast.Slice(lower=None, upper=ast.Constant(value=int(number)), step=None):
                    return number
        return 0

    def _slices(self) -> Iterator[ast.Slice]:
        """The slices in what the loops around it go through, and those that gave the module."""
        subscripts = (*subscripts_around(self), *subscripts_behind(self.module))
        return (part.slice for part in subscripts if isinstance(part.slice, ast.Slice))

    @property
    def module(self) -> Value:
        """The target; for a parameter in a loop the module that it belongs to."""
        return _owner(self.target)


class GradientSwitchCall(CallEvent, GradientSwitch):
    """``module.requires_grad_(False)``."""

    __slots__ = ()

    @property
    def target(self) -> Value:
        """The module, parameter or tensor."""
        return self.call.receiver

    @property
    def value(self) -> Value:
        """What it is switched to; ABSENT for the default, on."""
        return self.call.argument(0, "requires_grad")


class GradientSwitchWrite(WriteEvent, GradientSwitch):
    """``parameter.requires_grad = False``."""

    __slots__ = ()

    @property
    def target(self) -> Value:
        """The module, parameter or tensor."""
        return self.write.obj

    @property
    def value(self) -> Value:
        """What it is switched to."""
        return self.write.value


def subscripts_around(switch: GradientSwitch) -> Iterator[ast.Subscript]:
    """The subscripts in what the loops around ``switch`` go through.

    Not those in a list that is written there and followed step by step: each belongs to one of its elements.
    """
    is_step = not isinstance(switch.module, Choice)
    for loop in switch.place.loops:
        if isinstance(loop, ast.For) and not (is_step and isinstance(loop.iter, ast.List | ast.Tuple)):
            yield from (part for part in all_nodes(loop.iter) if isinstance(part, ast.Subscript))


def subscripts_behind(value: Value) -> Iterator[ast.Subscript]:
    """The subscripts that took ``value`` out of what it is a part of: `layers = model.encoder.layer[:8]`."""
    while isinstance(value, Attr | Element):
        if isinstance(value.node, ast.Subscript):
            yield value.node
        value = value.base if isinstance(value, Attr) else value.of


def _owner(value: Value) -> Value:
    match value:
        case Element(of=Result(call)) if call.method in ("parameters", "named_parameters"):
            return call.receiver
        case Element(of=Element() as inner):
            return _owner(inner)
    return value
