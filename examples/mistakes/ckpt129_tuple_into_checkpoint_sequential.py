"""Blocks that pass on (hidden, mask) go through the reentrant `checkpoint_sequential`."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, inputs: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, mask = inputs
        return hidden + torch.tanh(self.linear(hidden)) * mask, mask


def main() -> None:
    blocks = nn.Sequential(*(Block() for _ in range(6)))
    hidden, mask = torch.randn(4, 16, requires_grad=True), torch.ones(4, 1)
    hidden, _ = checkpoint_sequential(blocks, 3, (hidden, mask), use_reentrant=True)  # mistake: CKPT129
    hidden.pow(2).mean().backward()
    trained = [block.linear.weight.grad is not None for block in blocks]
    assert trained == [False] * 4 + [True] * 2
    print(f"confirmed: {trained.count(False)} of {len(trained)} blocks have no gradient, and nothing was said")


if __name__ == "__main__":
    main()
