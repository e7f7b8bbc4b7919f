"""FLOPs of an op, a multiply-add counted as two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from .symbols import plain_size

if TYPE_CHECKING:
    from torch._ops import OpOverload

_aten = torch.ops.aten


def flops_of(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    """FLOPs (an int or an expression): counted for contractions, 0 for what only moves or maps memory."""
    if func is _aten._scaled_dot_product_flash_attention_for_cpu.default:
        return plain_size(sdpa_flop_count(args[0].shape, args[1].shape, args[2].shape))  # type: ignore[no-untyped-call]
    formula = flop_registry.get(func.overloadpacket)
    if formula is None:
        return 0
    try:
        return plain_size(formula(*args, **kwargs, out_val=output))
    except (TypeError, ValueError, AssertionError):
        return 0
