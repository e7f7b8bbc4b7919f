"""A reentrant checkpoint around FSDP units gathers every parameter twice in the backward pass."""

import torch
from _symptom import confirm, on_two_ranks
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        return x + self.linear(x).tanh()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(16, 16)
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)  # mistake: CKPT401
        return x


class Right(Net):
    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def shard(model):
    return FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"))


class Gathers(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += "allgather" in str(func)
        return func(*args, **(kwargs or {}))


def train(rank):
    counts = []
    for model in (shard(Net()), shard(Right())):
        for _ in range(2):  # the first step records the order of execution
            loss = model(torch.randn(4, 16)).sum()
            with Gathers() as gathers:
                loss.backward()
        counts.append(gathers.count)
    return counts


def main():
    counts = on_two_ranks(train)
    confirm(counts == [6, 3], f"{counts[0]} all-gathers in the backward pass instead of {counts[1]}")


if __name__ == "__main__":
    main()
