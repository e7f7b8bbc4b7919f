"""A residual stack loses its residual: `checkpoint_sequential` runs the children itself."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential


class Residual(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + super().forward(x)


def main() -> None:
    torch.manual_seed(0)
    stack = Residual(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16), nn.GELU())
    x = torch.randn(4, 16)
    wanted = stack(x)
    got = checkpoint_sequential(stack, 2, x, use_reentrant=False)  # mistake: CKPT134
    difference = ((got - wanted).norm() / wanted.norm()).item()
    assert torch.allclose(got, wanted - x, atol=1e-6)
    print(f"confirmed: the output is {difference:.0%} off, exactly the residual is missing")


if __name__ == "__main__":
    main()
