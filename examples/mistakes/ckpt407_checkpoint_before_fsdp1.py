"""Checkpoint wrappers before FSDP1: not the documented order, and yet the same units."""

import torch
from _symptom import confirm, on_two_ranks
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        return x + self.linear(x).tanh()


def wrap(model, policy):
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))  # mistake: CKPT407
    return FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))


def wrap_as_documented(model, policy):
    model = FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
    return model


def train(rank):
    units = []
    for order in (wrap, wrap_as_documented):
        model = order(nn.Sequential(*(Block() for _ in range(3))), ModuleWrapPolicy({Block}))
        model(torch.randn(4, 16)).sum().backward()
        units.append(len(FSDP.fsdp_modules(model)))
    return units


def main():
    units = on_two_ranks(train)
    confirm(units == [4, 4], f"{units[0]} FSDP units, {units[1]} in the documented order: a matter of style")


if __name__ == "__main__":
    main()
