"""The loop checkpoints every block and hands the input on as it was."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(4))
        self.head = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            checkpoint(block, x, use_reentrant=False)  # mistake: CKPT209
        return self.head(x)


def main() -> None:
    net = Net()
    net(torch.randn(8, 16)).pow(2).mean().backward()
    without = [name for name, parameter in net.named_parameters() if parameter.grad is None]
    assert without == [name for name, _ in net.named_parameters() if name.startswith("blocks")]
    print(
        f"confirmed: {len(without)} of {len(list(net.parameters()))} parameters have no gradient: only the head trains"
    )


if __name__ == "__main__":
    main()
