"""When two tensors are the same to the last bit."""

from __future__ import annotations

import torch


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are equal bit for bit (NaN equals the same NaN), in the same layout."""
    if a.dtype != b.dtype or a.shape != b.shape or not _same_layout(a, b):
        return False
    if a.numel() == 0:
        return True
    return torch.equal(a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8))


def _same_layout(a: torch.Tensor, b: torch.Tensor) -> bool:
    return all(x == y for size, x, y in zip(a.shape, a.stride(), b.stride(), strict=True) if size > 1)
