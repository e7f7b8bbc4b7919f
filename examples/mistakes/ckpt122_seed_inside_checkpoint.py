"""A seed is to make dropout agree with its recomputation, and makes all masks of the run the same."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.linear = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(42)
        return x + torch.tanh(self.linear(self.drop(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)  # mistake: CKPT122
        return x


def main() -> None:
    net = Net()
    masks: list[tuple[bool, ...]] = []
    for block in net.blocks:
        block.drop.register_forward_hook(
            lambda _, inputs, output: masks.append(tuple((output == 0).flatten().tolist()))
        )
    augmentation = []
    for _ in range(4):
        net(torch.ones(8, 16)).sum().backward()
        augmentation.append(torch.rand(()).item())
    assert len(masks) == 24
    assert len(set(masks)) == 1
    assert len(set(augmentation)) == 1
    print(
        f"confirmed: {len(masks)} dropout masks in 4 steps are all the same, and so is every number drawn behind them"
    )


if __name__ == "__main__":
    main()
