"""Launchers that wrap a model for several GPUs in place of the program: Lightning, Fabric, accelerate."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ...facts.values import Absent, Instance, Result, Value, options
from ..types import bases, class_names, is_hf_model
from .event import CallEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call

ACCELERATOR = "accelerate.Accelerator"


class HandOver(CallEvent):
    """A launcher gets a model and wraps it."""

    __slots__ = ()
    #: The canonical names of the launchers that have the method.
    launchers: ClassVar[frozenset[str]]
    #: The name of the parameter for the model, the first one.
    parameter: ClassVar[str] = "module"

    @classmethod
    def may_launch(cls, value: Value) -> bool:
        """Whether ``value``, whose method is called, may be such a launcher."""
        return any(cls._is_launcher(option) for option in options(value))

    @classmethod
    def _is_launcher(cls, option: Value) -> bool:
        return not cls.launchers.isdisjoint(class_names(option))

    @property
    def builds(self) -> list[Call]:
        """The calls that built the launcher, as far as the program shows them."""
        made = (_construction(option) for option in options(self.call.receiver) if self._is_launcher(option))
        return [call for call in made if call is not None]

    @property
    def modules(self) -> list[Value]:
        """The models that it gets."""
        given = self.call.argument(0, self.parameter)
        return [] if isinstance(given, Absent) else [given]

    def handed(self) -> Iterator[tuple[Call, Value]]:
        """Each model with each call that may have built the launcher that gets it."""
        return ((build, module) for build in self.builds for module in self.modules)


class LightningFit(HandOver):
    """``trainer.fit(module)`` of Lightning."""

    __slots__ = ()
    words = (".fit(",)
    launchers = frozenset(("lightning.Trainer", "pytorch_lightning.Trainer"))
    parameter = "model"


class FabricSetup(HandOver):
    """``fabric.setup(module, optimizer)`` or ``fabric.setup_module(module)`` of Lightning."""

    __slots__ = ()
    words = (".setup",)
    launchers = frozenset(("lightning.Fabric", "pytorch_lightning.Fabric"))


class AcceleratePrepare(HandOver):
    """``accelerator.prepare(model, ...)``: an Accelerator wraps what it is given."""

    __slots__ = ()
    words = (".prepare",)
    launchers = frozenset((ACCELERATOR,))

    @property
    def objects(self) -> list[Value]:
        """The models, optimizers and loaders."""
        return self.call.args

    @property
    def modules(self) -> list[Value]:
        """The models among them."""
        return [value for value in self.objects if _is_module(value)]


def _construction(launcher: Value) -> Call | None:
    match launcher:
        case Result(call):
            return call
        case Instance(_, call):
            return call
    return None


def _is_module(value: Value) -> bool:
    return is_hf_model(value) or (isinstance(value, Instance) and any("Module" in name for name in bases(value.cls)))
