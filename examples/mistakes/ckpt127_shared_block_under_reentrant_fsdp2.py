"""FSDP2 and one block that three reentrant checkpoints share: its gradients are wrong, without a word."""

import torch
import torch.distributed as dist
from _symptom import confirm, on_two_ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 16)
        self.down = nn.Linear(16, 16)

    def forward(self, x):
        return x + self.down(self.up(x).tanh())


class Universal(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Linear(16, 16)
        self.block = Block()

    def forward(self, x):
        x = self.embed(x)
        for _ in range(3):
            x = checkpoint(self.block, x, use_reentrant=True)  # mistake: CKPT127
        return x


def build():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = Universal()
    fully_shard(model.block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def batch(rank):
    return torch.randn(4, 16, generator=torch.Generator().manual_seed(rank))


def train(rank):
    model = build()
    model(batch(rank)).pow(2).mean().backward()
    reference = Universal()
    for other in range(2):
        x = reference.embed(batch(other))
        for _ in range(3):
            x = reference.block(x)
        (x.pow(2).mean() / 2).backward()
    found, wanted = model.block.up.weight.grad, reference.block.up.weight.grad
    found = found.full_tensor() if hasattr(found, "full_tensor") else found
    return float((found - wanted).norm() / wanted.norm())


def main():
    error = on_two_ranks(train)
    confirm(isinstance(error, float) and error > 0.2, f"the gradient of the shared block is off by {error:.0%}")


if __name__ == "__main__":
    main()
