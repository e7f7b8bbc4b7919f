"""`apply_activation_checkpointing` without `check_fn` wraps every module at every level."""

import torch
from _symptom import Executions, confirm
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x):
        return x + self.mlp(x)


def build():
    return nn.Sequential(Block(), Block(), Block())


def wrap_everything(model):
    apply_activation_checkpointing(model)  # mistake: CKPT404


def wrap_blocks(model):
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))


def executions(wrap):
    model = build()
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    wrap(model)
    with Executions(*linears) as runs:
        model(torch.randn(2, 16)).sum().backward()
    return runs.count


def main():
    everything, blocks = executions(wrap_everything), executions(wrap_blocks)
    confirm(
        everything > blocks,
        f"{everything} executions of 6 linear layers in a step, {blocks} with only the blocks wrapped",
    )


if __name__ == "__main__":
    main()
