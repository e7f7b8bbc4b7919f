"""A block has a cheap path for inference, and the reentrant variant takes it for the loss."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            return torch.tanh(2 * self.linear(x))
        return (2 * self.linear(x)).clamp(-1, 1)


def train(checkpointing: bool) -> tuple[float, torch.Tensor]:
    torch.manual_seed(0)
    block, x = Block(), torch.randn(32, 16, requires_grad=True)
    y = checkpoint(block, x, use_reentrant=True) if checkpointing else block(x)  # mistake: CKPT132
    loss = (y - 1).pow(2).mean()
    loss.backward()
    assert block.linear.weight.grad is not None
    return loss.item(), block.linear.weight.grad


def main() -> None:
    (wanted, gradient), (got, other) = train(checkpointing=False), train(checkpointing=True)
    error = ((other - gradient).norm() / gradient.norm()).item()
    assert error > 0.01
    print(f"confirmed: the loss is {got:.3f} instead of {wanted:.3f}, and the gradient is {error:.0%} off")


if __name__ == "__main__":
    main()
