"""Precision changes before the backward pass, and nobody looks: the gradients belong to another function."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.precise = False
        self.gain = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.gain * self.linear(x)
        return torch.tanh(x if self.precise else x.bfloat16()).float()


def gradient(checkpointed: bool) -> torch.Tensor:
    torch.manual_seed(0)
    block, x = Block(), torch.randn(8, 16)
    if checkpointed:
        y = checkpoint(block, x, use_reentrant=False, determinism_check="none")  # mistake: CKPT124
    else:
        y = block(x)
    # A schedule that moves on between the forward and the backward pass.
    block.precise, block.gain = True, 3.0
    y.sum().backward()
    assert block.linear.weight.grad is not None
    return block.linear.weight.grad


def main() -> None:
    wanted, got = gradient(checkpointed=False), gradient(checkpointed=True)
    error = ((got - wanted).norm() / wanted.norm()).item()
    assert error > 0.1
    print(f"confirmed: no error, and the gradient is {error:.0%} off")


if __name__ == "__main__":
    main()
