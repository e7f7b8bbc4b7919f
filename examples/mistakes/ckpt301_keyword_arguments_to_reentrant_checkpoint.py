"""The reentrant variant takes no keyword arguments for the function."""

import torch
from _symptom import confirm, failure
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x, mask=None):
        return self.linear(x) if mask is None else self.linear(x) * mask


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x, mask):
        x = self.embed(x)
        for block in self.blocks:
            x = checkpoint(block, x, mask=mask, use_reentrant=True)  # mistake: CKPT301
        return x


def main():
    problem = failure(lambda: Encoder()(torch.randn(4, 8), torch.ones(4, 1)))
    confirm("Unexpected keyword arguments: mask" in problem, problem)


if __name__ == "__main__":
    main()
