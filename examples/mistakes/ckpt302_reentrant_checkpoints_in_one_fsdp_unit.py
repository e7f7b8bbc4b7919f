"""One FSDP unit with several reentrant checkpoints in it: the backward pass meets freed parameters."""

import torch
from _symptom import confirm, failure, on_two_ranks
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(16, 16)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(3))

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)  # mistake: CKPT302
        return x


def train(rank):
    model = FSDP(Net(), device_id=torch.device("cpu"))
    return failure(lambda: model(torch.randn(4, 16)).sum().backward())


def main():
    problem = on_two_ranks(train)
    confirm("RuntimeError" in problem, problem)


if __name__ == "__main__":
    main()
