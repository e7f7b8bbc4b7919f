"""A block that keeps its last norm for the log, checkpointed, in a model compiled as one graph."""

import torch
from _symptom import confirm, failure
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.last_norm = None

    def forward(self, x):
        y = x + self.linear(x).tanh()
        self.last_norm = y.norm()
        return y


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)  # mistake: CKPT315
        return x


def main():
    model = torch.compile(Encoder(), backend="aot_eager", fullgraph=True)
    problem = failure(lambda: model(torch.randn(4, 16)))
    confirm("Unsupported" in problem, problem)


if __name__ == "__main__":
    main()
