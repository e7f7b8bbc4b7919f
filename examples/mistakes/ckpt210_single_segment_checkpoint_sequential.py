"""`checkpoint_sequential` with one segment checkpoints nothing: every activation is kept."""

import torch
from _symptom import Executions, confirm
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(4)))

    def forward(self, x):
        return checkpoint_sequential(self.blocks, 1, x, use_reentrant=False)  # mistake: CKPT210


def main():
    encoder = Encoder()
    with Executions(*encoder.blocks) as runs:
        encoder(torch.randn(2, 16)).sum().backward()
    confirm(runs.count == 4, f"{runs.count} block executions in a step of 4 blocks: nothing was recomputed")


if __name__ == "__main__":
    main()
