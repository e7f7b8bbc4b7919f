"""The block is checkpointed and so is its feed-forward part: that part runs three times a step."""

import torch
from _symptom import Executions, confirm
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.mlp = FeedForward()
        self.out = nn.Linear(16, 16)

    def forward(self, x):
        return x + self.out(self.mlp(self.norm(x)))


def build():
    model = nn.Sequential(*(Block() for _ in range(3)))
    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, (Block, FeedForward)))  # mistake: CKPT402
    return model


def main():
    model = build()
    parts = [module for module in model.modules() if isinstance(module, FeedForward)]
    with Executions(*(part.up for part in parts)) as runs:
        model(torch.randn(4, 16, requires_grad=True)).sum().backward()
    confirm(runs.count == 9, f"the feed-forward parts of 3 blocks run {runs.count} times a step, 6 would do")


if __name__ == "__main__":
    main()
