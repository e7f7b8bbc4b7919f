"""A fallback for kernels that fail catches the exception by which torch ends every recomputation."""

import torch
from _symptom import confirm, failure
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)

    def forward(self, x):
        try:
            return self.down(nn.functional.gelu(self.up(x)))
        except Exception:
            return self.down(nn.functional.gelu(self.up(x.float())))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)  # mistake: CKPT313
        return x


def main():
    loss = Encoder()(torch.randn(4, 16)).sum()
    problem = failure(loss.backward)
    confirm("early_stop" in problem, problem)


if __name__ == "__main__":
    main()
