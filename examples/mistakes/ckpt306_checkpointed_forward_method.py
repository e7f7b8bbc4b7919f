"""Checkpointing `block.forward` goes past the hooks: FSDP2 never gathers the parameters."""

import torch
import torch.distributed as dist
from _symptom import confirm, failure, on_two_ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(16, 16)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(3))

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = checkpoint(block.forward, x, use_reentrant=False)  # mistake: CKPT306
        return x


def train(rank):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = Encoder()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return failure(lambda: model(torch.randn(4, 16)).sum().backward())


def main():
    problem = on_two_ranks(train)
    confirm("mixed torch.Tensor and DTensor" in problem, problem.split(":")[0] + ": mixed torch.Tensor and DTensor")


if __name__ == "__main__":
    main()
