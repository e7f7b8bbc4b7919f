"""Which ops draw random numbers. Their results are kept, never drawn again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from .ir import Ref

if TYPE_CHECKING:
    from .ir import TracedOp

_aten = torch.ops.aten


def draws_random_numbers(func: torch._ops.OpOverload, templates: tuple[Any, dict[str, Any]]) -> str:
    """Why ``func`` must not run twice: the obstacle's text, or "" when it draws nothing."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return ""
    args, kwargs = templates
    for position, argument in enumerate(func._schema.arguments):
        if argument.name in ("dropout_p", "p"):
            default = argument.default_value if argument.has_default_value() else None
            probability = kwargs.get(argument.name, args[position] if position < len(args) else default)
            if probability in (0, 0.0):
                return ""
    return f"{func} draws random numbers"


def apply_dropout(x: torch.Tensor, mask: torch.Tensor, p: float) -> torch.Tensor:
    """What ``aten.native_dropout`` does with its mask, to the last bit."""
    return x.mul(mask).mul_(1.0 / (1.0 - p) if p < 1 else 0.0)


def split_dropout(op: TracedOp) -> tuple[TracedOp, ...]:
    """Split a fused dropout into the draw of its mask and the application; other ops pass through."""
    if op.target is not _aten.native_dropout.default or not op.obstacle:
        return (op,)
    out, mask = op.outputs
    made_out, made_mask = op.writes
    draw = replace(op, outputs=(None, mask), writes=(made_mask,))
    assert mask is not None
    apply = replace(
        op, index=op.index + 1, target=apply_dropout, args=(op.args[0], Ref(mask, made_mask), op.args[1]), kwargs={},
        outputs=(out,), single=True, reads=(*op.reads, made_mask), writes=(made_out,), obstacle="",
    )  # fmt: skip
    return draw, apply
