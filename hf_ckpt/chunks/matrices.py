"""The matrices of an MLP, whatever holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


def matrix_widths(module: nn.Module) -> list[int]:
    """The larger side of each matrix in a module, also where its weight is packed (bitsandbytes, GPTQ, AWQ)."""
    return [width for part in module.modules() for width in _own_widths(part)]


def _own_widths(part: nn.Module) -> list[int]:
    sides = [getattr(part, name, None) for name in ("in_features", "out_features")]
    if not part._modules and all(isinstance(side, int) for side in sides):
        return [max(side for side in sides if side is not None)]
    return [max(weight.shape) for weight in part._parameters.values() if weight is not None and weight.dim() == 2]
