"""Which ops draw random numbers, and what a fused dropout does with its mask."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from .ir import Ref

if TYPE_CHECKING:
    from .ir import TracedOp

_aten = torch.ops.aten


def draws_random_numbers(func: torch._ops.OpOverload, templates: tuple[Any, dict[str, Any]]) -> bool:
    """Whether ``func``, called like this, draws random numbers: attention with a dropout of 0 does not."""
    return torch.Tag.nondeterministic_seeded in func.tags and _argument(func, templates, "dropout_p") != 0.0


def uses_own_generator(func: torch._ops.OpOverload, templates: tuple[Any, dict[str, Any]]) -> bool:
    """Whether the numbers come from a ``torch.Generator`` of the layer's own, whose state nobody saves."""
    return _argument(func, templates, "generator") is not None


def _argument(func: torch._ops.OpOverload, templates: tuple[Any, dict[str, Any]], name: str) -> Any:
    args, kwargs = templates
    for position, argument in enumerate(func._schema.arguments):
        if argument.name == name:
            default = argument.default_value if argument.has_default_value() else None
            return kwargs.get(name, args[position] if position < len(args) else default)
    return None


def apply_dropout(x: torch.Tensor, mask: torch.Tensor, p: float) -> torch.Tensor:
    """What ``aten.native_dropout`` does with its mask, to the last bit."""
    kept = 1.0 - p
    if x.device.type != "cpu" and x.dtype is not torch.float64:
        kept = in_single_precision(kept)
    return x.mul(mask).mul_(1.0 / kept if kept else 0.0)


def in_single_precision(number: float) -> float:
    """``number`` rounded to float32.

    CUDA's ``fused_dropout_kernel`` (ATen/native/cuda/Dropout.cu) scales by ``1 / (1 - p)`` in ``acc_type``, float32 for
    all but float64; the CPU's ``native_dropout`` in double. Multiplying rounds our quotient of a rounded divisor to
    float32, which is the float32 quotient: double has more than twice its digits.
    """
    (rounded,) = struct.unpack("f", struct.pack("f", number))
    return float(rounded)


def split_dropout(op: TracedOp) -> tuple[TracedOp, ...]:
    """Split a fused dropout into the draw of its mask and the application; other ops pass through."""
    if op.target is not _aten.native_dropout.default or op.draw is None:
        return (op,)
    out, mask = op.outputs
    made_out, made_mask = op.writes
    draw = replace(op, outputs=(None, mask), writes=(made_mask,))
    assert mask is not None
    apply = replace(
        op, index=op.index + 1, target=apply_dropout, args=(op.args[0], Ref(mask, made_mask), op.args[1]), kwargs={},
        outputs=(out,), single=True, reads=(*op.reads, made_mask), writes=(made_out,), draw=None,
    )  # fmt: skip
    return draw, apply
