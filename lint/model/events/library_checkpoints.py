"""Regions that other libraries checkpoint, by torch's functions or by their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values import ABSENT, Absent, Value, equals
from ...prefilter.words import MODULE
from ..variant import torch_reentrant
from .checkpoints import Checkpointing, FunctionCheckpoint
from .event import CallEvent

if TYPE_CHECKING:
    from ...facts.values import Call


class DeepSpeedCheckpoint(FunctionCheckpoint):
    """``deepspeed.checkpointing.checkpoint(fn, *args)``: torch's reentrant variant, made anew (DeepSpeed 0.19).

    What its configuration changes is where the inputs wait for the backward pass: whole, in parts, or on the CPU.
    """

    __slots__ = ()
    words = (("deepspeed", f"{MODULE}checkpointing"),)
    NAMES = (
        "deepspeed.checkpointing.checkpoint",
        "deepspeed.runtime.activation_checkpointing.checkpointing.checkpoint",
    )

    @property
    def reentrant(self) -> bool | None:
        """Always."""
        return True


class TimmCheckpoint(FunctionCheckpoint):
    """``timm.models.checkpoint(function, *args)``: torch's, non-reentrant unless told otherwise (timm 1.0.13)."""

    __slots__ = ()
    words = ("_manipulate", "timm.models import checkpoint")
    NAMES = ("timm.models.checkpoint", "timm.models._manipulate.checkpoint")

    @property
    def reentrant(self) -> bool | None:
        """Whether the reentrant variant runs."""
        return _timm_reentrant(self.call)


class TimmSegments(Checkpointing):
    """``timm.models.checkpoint_seq(functions, x)``: each function, or some in a row, is a region of its own."""

    __slots__ = ()
    words = ("checkpoint_seq",)
    NAMES = tuple(f"timm.models.{module}checkpoint_seq" for module in ("", "helpers.", "_manipulate."))

    @property
    def functions(self) -> Value:
        """What is checkpointed; ABSENT where the last one may be left out."""
        skips = self.call.argument(4, "skip_last")
        are_all = isinstance(skips, Absent) or equals(skips, False) is True
        return self.call.argument(0, "functions") if are_all else ABSENT

    @property
    def reentrant(self) -> bool | None:
        """Whether the reentrant variant runs; the default was torch's, and is the other one since timm 1.0.13."""
        given = self.call.keyword("use_reentrant")
        return None if isinstance(given, Absent) else _timm_reentrant(self.call)


def _timm_reentrant(call: Call) -> bool | None:
    given = call.keyword("use_reentrant")
    return False if isinstance(given, Absent) or equals(given, None) is True else torch_reentrant(given)


class OwnCheckpoint(CallEvent):
    """A library's own checkpoint, which has little in common with torch's: it is explained, and no rule judges it.

    fairscale's keeps running statistics right and takes inputs without gradients, Megatron's and Apex's keep the random
    states of tensor parallelism.
    """

    __slots__ = ()
    words = ("checkpoint",)
    NAMES = (
        *(f"fairscale.nn.{module}checkpoint_wrapper" for module in ("", "checkpoint.", "misc.")),
        "fairscale.nn.checkpoint.checkpoint_activations.checkpoint_wrapper",
        "xformers.checkpoint.checkpoint",
        "megatron.core.tensor_parallel.checkpoint",
        "megatron.core.tensor_parallel.random.checkpoint",
        "apex.transformer.tensor_parallel.checkpoint",
        "apex.transformer.tensor_parallel.random.checkpoint",
        "torch_xla.utils.checkpoint.checkpoint",
        "torch_xla.distributed.fsdp.checkpoint_module",
    )

    @property
    def library(self) -> str:
        """Whose it is."""
        return self.call.name.partition(".")[0]
