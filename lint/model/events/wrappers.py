"""What goes around a model: FSDP, DDP, the compiler, accelerate's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values import Call, Ref, Result, Value, equals, options
from ...prefilter.words import MODULE
from ..names import canonical
from .event import CallEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

_FSDP1 = "torch.distributed.fsdp.FullyShardedDataParallel"
_ENABLES_WRAP = "torch.distributed.fsdp.enable_wrap"


class Fsdp1Wrap(CallEvent):
    """``FullyShardedDataParallel(module, ...)``."""

    __slots__ = ()
    words = ("FullyShardedDataParallel",)

    @property
    def module(self) -> Value:
        """The module that is wrapped."""
        return self.call.argument(0, "module")


def wraps_around(marked: Call) -> Iterator[Fsdp1Wrap]:
    """What torch's ``wrap(module)`` makes inside of an ``enable_wrap`` of FSDP1, whose settings hold for it."""
    for context in marked.place.contexts:
        for option in options(context):
            match option:
                case Result(call) if canonical(call.name) == _ENABLES_WRAP and _is_fsdp1(call.keyword("wrapper_cls")):
                    given = {name: value for name, value in call.kwargs.items() if name != "wrapper_cls"}
                    made = Call(marked.node, marked.func, marked.place, marked.order)
                    made.args, made.kwargs = marked.args, given | marked.kwargs
                    made.open_kwargs = call.open_kwargs or marked.open_kwargs
                    yield Fsdp1Wrap(made)


def _is_fsdp1(value: Value) -> bool:
    return isinstance(value, Ref) and canonical(value.name) == _FSDP1


class Fsdp2Shard(CallEvent):
    """``fully_shard(module, ...)``: shards in place."""

    __slots__ = ()
    words = ("fully_shard",)

    @property
    def module(self) -> Value:
        """The module that is sharded."""
        return self.call.argument(0, "module")


class DdpWrap(CallEvent):
    """``DistributedDataParallel(module, ...)``."""

    __slots__ = ()
    words = ("DistributedDataParallel",)

    @property
    def module(self) -> Value:
        """The module that is wrapped."""
        return self.call.argument(0, "module")


class Compile(CallEvent):
    """``torch.compile(module)`` or ``module.compile()``."""

    __slots__ = ()
    words = ("compile",)

    @property
    def module(self) -> Value:
        """What is compiled."""
        return self.call.receiver if self.call.method else self.call.argument(0, "model")


class AcceleratorBuild(CallEvent):
    """``accelerate.Accelerator(...)``."""

    __slots__ = ()
    words = ("Accelerator",)

    @property
    def plugins(self) -> list[Result]:
        """What its ``fsdp_plugin`` may be, as far as the program shows where it was made."""
        return [option for option in options(self.call.keyword("fsdp_plugin")) if isinstance(option, Result)]


class FsdpPlugin(CallEvent):
    """``accelerate.FullyShardedDataParallelPlugin(...)``."""

    __slots__ = ()
    # accelerate, which defines the class, speaks of it everywhere and is no program that builds one.
    words = (f"{MODULE}FullyShardedDataParallelPlugin",)

    @property
    def checkpoints(self) -> bool:
        """Whether it certainly asks accelerate to checkpoint the layers."""
        return equals(self.call.keyword("activation_checkpointing"), True, "true") is True

    @property
    def version(self) -> Value:
        """Which FSDP it stands for; ABSENT for the first."""
        return self.call.keyword("fsdp_version")
