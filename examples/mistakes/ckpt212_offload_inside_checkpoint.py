"""Offloading inside a checkpoint: everything is copied to the CPU and nothing is recomputed."""

import torch
from _symptom import Executions, confirm
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, offload_wrapper


def block():
    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))


def wrap(module):
    return checkpoint_wrapper(offload_wrapper(module))  # mistake: CKPT212


def wrap_right(module):
    return offload_wrapper(checkpoint_wrapper(module))


def runs(wrapped, inner):
    with Executions(inner) as executions:
        wrapped(torch.randn(4, 16, requires_grad=True)).sum().backward()
    return executions.count


def main():
    blocks = block(), block()
    found, wanted = runs(wrap(blocks[0]), blocks[0]), runs(wrap_right(blocks[1]), blocks[1])
    confirm((found, wanted) == (1, 2), f"the block runs {found} time a step instead of {wanted}: no recomputation")


if __name__ == "__main__":
    main()
