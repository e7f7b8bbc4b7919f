"""Launchers that wrap a model for several GPUs in place of the program: Lightning, Fabric, accelerate."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ...facts.values import ABSENT, Absent, Class, Instance, Ref, Result, Seq, Value, equals, options
from ..names import canonical
from ..types import bases, class_names, is_hf_model
from .checkpoints import BlockWrapping
from .event import CallEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Place

ACCELERATOR = "accelerate.Accelerator"
_POLICY = "activation_checkpointing_policy"


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


class LauncherCheckpointing(BlockWrapping):
    """Lightning or Fabric puts blocks of the model that it gets into torch's wrappers, as its ``FSDPStrategy`` says.

    They are non-reentrant (``_setup_activation_checkpointing`` in lightning/fabric/strategies/fsdp.py). ``call`` makes
    the strategy; the blocks are wrapped where the launcher gets the model.
    """

    __slots__ = ("_given", "_model")
    words = (("activation_checkpointing", "FSDPStrategy"),)

    def __init__(self, strategy: Call, given: Call, model: Value) -> None:
        super().__init__(strategy)
        self._given = given
        self._model = model

    @property
    def place(self) -> Place:
        """Where the launcher gets the model."""
        return self._given.place

    @property
    def order(self) -> int:
        """When it gets the model."""
        return self._given.order

    @property
    def model(self) -> Value:
        """The model whose submodules are wrapped in place."""
        return self._model

    @property
    def check(self) -> Value:
        """A set of classes, or a policy of FSDP; the older setting has a class or a list of them."""
        given = next(self._given_checks(), ABSENT)
        return Seq("set", [given], False, given.node) if isinstance(given, Class | Ref) else given

    @property
    def is_certain(self) -> bool:
        """Whether the strategy takes what it is given: not both settings, and no list of classes for a policy."""
        policy = self.call.keyword(_POLICY)
        return len([*self._given_checks()]) == 1 and not (isinstance(policy, Seq) and policy.kind != "set")

    def _given_checks(self) -> Iterator[Value]:
        for name in (_POLICY, "activation_checkpointing"):
            given = self.call.keyword(name)
            if not isinstance(given, Absent) and equals(given, None) is not True:
                yield given

    @property
    def reentrant(self) -> bool:
        """Whether the wrappers are reentrant."""
        return False


def checkpointings(given: HandOver) -> Iterator[LauncherCheckpointing]:
    """What a launcher's strategy says about the checkpointing of the models that it gets, where that is certain."""
    for build, module in given.handed() if len(given.builds) == 1 else ():
        match strategy_of(build):
            case Result(call) if canonical(call.name).rpartition(".")[2] == "FSDPStrategy":
                asked = LauncherCheckpointing(call, given.call, module)
                if asked.is_certain:
                    yield asked


def strategy_of(build: Call) -> Value:
    """The strategy of Lightning's Trainer or of Fabric, given by its name or as an object."""
    if canonical(build.name).endswith(".Fabric"):
        return build.argument(1, "strategy")
    return build.keyword("strategy")


def _construction(launcher: Value) -> Call | None:
    match launcher:
        case Result(call):
            return call
        case Instance(_, call):
            return call
    return None


def _is_module(value: Value) -> bool:
    return is_hf_model(value) or (isinstance(value, Instance) and any("Module" in name for name in bases(value.cls)))
