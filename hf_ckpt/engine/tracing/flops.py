"""FLOPs of an op, a multiply-add counted as two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.flop_counter import flop_registry

from ...op_catalogue import traits_of
from .symbols import plain_size

if TYPE_CHECKING:
    import torch
    from torch._ops import OpOverload


def flops_of(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    """FLOPs (an int or an expression): counted for contractions, 0 for what only moves or maps memory.

    Args:
        func: The op.
        args: Its positional arguments, fake tensors among them.
        kwargs: Its keyword arguments.
        output: What it returned.
    """
    if traits_of(str(func)).attention:  # the formulas of torch 2.11 refuse fewer key and value heads than query heads
        square = _attention(args[0].shape, args[1].shape, args[2].shape)
        return plain_size(square // 2 if _is_causal(func, args, kwargs) else square)
    formula = flop_registry.get(func.overloadpacket)
    if formula is None:
        return 0
    try:
        return plain_size(formula(*args, **kwargs, out_val=output))
    except (TypeError, ValueError, AssertionError):
        return 0


def _attention(query: torch.Size, key: torch.Size, value: torch.Size) -> Any:
    """Scores and their product with the values, shapes (batch, heads, length, width): the full square."""
    batch, heads, length, width = query
    return 2 * batch * heads * length * key[2] * (width + value[3])


def _is_causal(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the kernel skips what lies above the diagonal; what a mask hides it computes all the same."""
    names = [argument.name for argument in func._schema.arguments]
    if "is_causal" not in names:
        return False
    place = names.index("is_causal")
    return bool(args[place] if place < len(args) else kwargs.get("is_causal", False))
