"""Ops whose first result follows from their second: dropout from its mask, the values of ``topk`` from its indices.

Such an op is recorded as two, so that the second result can be kept alone. Where a rebuild needs both, it runs the op
as it was (see codegen.py).
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from .ir import Ref

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .ir import TracedOp, Value

_aten = torch.ops.aten


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


def take_along(x: torch.Tensor, indices: torch.Tensor, dim: int) -> torch.Tensor:
    """The values that ``topk`` and ``sort`` return, from the indices they return."""
    return x.gather(dim, indices)


def take_one(x: torch.Tensor, indices: torch.Tensor, dim: int) -> torch.Tensor:
    """The values that ``max`` and ``min`` over a dimension return, from the indices they return."""
    return x.gather(dim, indices.unsqueeze(dim)).squeeze(dim)


#: The second halves; as targets of ops they tell a split one.
SECOND_HALVES = frozenset({apply_dropout, take_along, take_one})
_SELECTIONS: dict[Any, Callable[[dict[str, Any]], Callable[..., torch.Tensor]]] = {
    _aten.topk.default: lambda _: take_along,
    _aten.sort.default: lambda _: take_along,
    _aten.sort.stable: lambda _: take_along,
    _aten.max.dim: lambda arguments: take_along if arguments["keepdim"] else take_one,
    _aten.min.dim: lambda arguments: take_along if arguments["keepdim"] else take_one,
}


def split(op: TracedOp, values: Sequence[Value]) -> tuple[TracedOp, ...]:
    """The two halves of an op of this kind; any other op passes through."""
    halves = _second_half(op, values)
    if halves is None:
        return (op,)
    target, extra = halves
    first_result, second_result = op.outputs
    made_first, made_second = op.writes
    assert second_result is not None
    draw = replace(op, outputs=(None, second_result), writes=(made_second,))
    follow = replace(
        op, index=op.index + 1, target=target, args=(op.args[0], Ref(second_result, made_second), extra), kwargs={},
        outputs=(first_result,), single=True, reads=(*op.reads, made_second), writes=(made_first,), draw=None,
    )  # fmt: skip
    return draw, follow


def _second_half(op: TracedOp, values: Sequence[Value]) -> tuple[Callable[..., torch.Tensor], Any] | None:
    """What makes the first result of ``op`` from its second, and its third argument."""
    if op.target is _aten.native_dropout.default and op.draw is not None:
        return apply_dropout, op.args[1]
    choose = _SELECTIONS.get(op.target)
    first = op.outputs[0] if op.outputs else None
    if choose is None or first is None or not _is_row_major(values[first]):
        return None
    arguments = arguments_of(op)
    return choose(arguments), arguments["dim"]


def arguments_of(op: TracedOp) -> dict[str, Any]:
    """The arguments of an op by name, defaults included."""
    schema = op.target._schema.arguments  # type: ignore[attr-defined]
    given = dict(zip((argument.name for argument in schema), op.args, strict=False)) | op.kwargs
    return {a.name: a.default_value for a in schema if a.has_default_value()} | given


def _is_row_major(value: Value) -> bool:
    """Whether the value lies in memory as what ``gather`` returns."""
    expected: Any = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride), strict=True):
        if stride != expected:
            return False
        expected = expected * size
    return True
