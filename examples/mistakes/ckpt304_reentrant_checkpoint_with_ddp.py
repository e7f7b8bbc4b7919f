"""DDP that looks for unused parameters, and reentrant checkpoints: the first backward pass fails."""

import torch
from _symptom import confirm, failure, on_two_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(16, 16)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(3))

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)  # mistake: CKPT304
        return x


def train(rank):
    model = DDP(Encoder(), find_unused_parameters=True)
    return failure(lambda: model(torch.randn(4, 16)).sum().backward())


def main():
    problem = on_two_ranks(train)
    confirm("Expected to mark a variable ready only once" in problem, problem.split(". ")[0])


if __name__ == "__main__":
    main()
