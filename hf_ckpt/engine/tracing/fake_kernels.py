"""Ops whose fake kernel is stricter than the real one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch._ops import OpOverload


def run_fake(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run ``func`` on fake tensors."""
    if func is torch.ops.aten._grouped_mm.default and args[0].dtype is not torch.bfloat16:
        return _grouped_mm(args, kwargs)
    return func(*args, **kwargs)


def _grouped_mm(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """The CPU kernel takes every floating dtype, its fake kernel bfloat16 only."""
    half = [item.to(torch.bfloat16) if _is_floating(item) else item for item in args]
    output: torch.Tensor = torch.ops.aten._grouped_mm.default(*half, **kwargs)
    return torch.empty_strided(output.shape, output.stride(), dtype=args[0].dtype, device=args[0].device)


def _is_floating(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.is_floating_point()
