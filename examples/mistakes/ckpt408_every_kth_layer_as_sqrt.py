"""Every sqrt(n)-th layer checkpointed: not the square-root strategy, which keeps only what is between segments."""

import math

import torch
from _symptom import confirm, saved_bytes
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)) for _ in range(16))
        )
        self.every = int(math.sqrt(len(self.layers)))

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            if i % self.every == 0:
                x = checkpoint(layer, x, use_reentrant=False)  # mistake: CKPT408
            else:
                x = layer(x)
        return x

    def in_segments(self, x):
        return checkpoint_sequential(self.layers, self.every, x, use_reentrant=False)


def measure(run, stack):
    weights = sum(weight.numel() * 4 for weight in stack.layers.parameters() if weight.dim() == 2)
    with saved_bytes() as saved:
        run(torch.randn(256, 16, requires_grad=True))
    return max(saved() - weights, 0)


def main():
    stack = Stack()
    plain, sparse, segments = (measure(run, stack) for run in (stack.layers, stack, stack.in_segments))
    confirm(
        sparse > 0.7 * plain and segments < 0.4 * plain,
        f"keeps {sparse / plain:.0%} of the bytes of no checkpointing; true segments keep {segments / plain:.0%}",
    )


if __name__ == "__main__":
    main()
