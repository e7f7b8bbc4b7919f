"""fully_shard, then the checkpoint wrapper, then torch.compile: not one block is compiled."""

# slow

import torch
import torch.distributed as dist
from _symptom import confirm, failure, on_two_ranks
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def build():
    return nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(2)))


def parallelize(model, mesh):
    for index, block in enumerate(model):
        fully_shard(block, mesh=mesh)
        block = checkpoint_wrapper(block)  # mistake: CKPT406
        model[index] = torch.compile(block, backend="aot_eager", fullgraph=True)
    fully_shard(model, mesh=mesh)
    return model


def parallelize_right(model, mesh):
    for index, block in enumerate(model):
        block = checkpoint_wrapper(block)
        block = torch.compile(block, backend="aot_eager", fullgraph=True)
        fully_shard(block, mesh=mesh)
        model[index] = block
    fully_shard(model, mesh=mesh)
    return model


def train(rank):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    problems = []
    for order in (parallelize, parallelize_right):
        model = order(build(), mesh)
        problems.append(failure(lambda model=model: model(torch.randn(4, 16)).sum().backward()))
    return problems


def main():
    found, wanted = on_two_ranks(train)
    confirm("Unsupported" in found and not wanted, f"{found or 'no error'}; in the other order: {wanted or 'no error'}")


if __name__ == "__main__":
    main()
