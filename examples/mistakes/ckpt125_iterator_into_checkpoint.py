"""Noise comes from an iterator: the recomputation gets the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, noise: Iterator[torch.Tensor], checkpointing: bool) -> torch.Tensor:
        def block(h: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.linear(h) * next(noise))

        if checkpointing:
            return checkpoint(block, x, use_reentrant=False)  # mistake: CKPT125
        return block(x)


def gradient(checkpointing: bool) -> torch.Tensor:
    torch.manual_seed(0)
    model, x = Denoiser(), torch.randn(8, 16)
    noise = iter([torch.randn(8, 16) for _ in range(4)])
    model(x, noise, checkpointing).sum().backward()
    assert model.linear.weight.grad is not None
    return model.linear.weight.grad


def main() -> None:
    wanted, got = gradient(checkpointing=False), gradient(checkpointing=True)
    error = ((got - wanted).norm() / wanted.norm()).item()
    assert error > 0.1
    print(f"confirmed: the same loss, no error, and the gradient is {error:.0%} off")


if __name__ == "__main__":
    main()
