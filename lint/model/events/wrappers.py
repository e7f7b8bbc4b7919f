"""What goes around a model: FSDP, DDP, the compiler, accelerate's settings."""

from __future__ import annotations

from ...facts.values import Result, Value, equals, options
from ...prefilter.words import MODULE
from .event import CallEvent


class Fsdp1Wrap(CallEvent):
    """``FullyShardedDataParallel(module, ...)``."""

    __slots__ = ()
    words = ("FullyShardedDataParallel",)

    @property
    def module(self) -> Value:
        """The module that is wrapped."""
        return self.call.argument(0, "module")


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
