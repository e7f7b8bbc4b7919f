"""Segments of sqrt(L) layers, with boundaries that are detached "because the checkpoint recomputes anyway"."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Stack(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = math.isqrt(len(self.layers))
        boundaries = {0: x}

        def segment(start: int, h: torch.Tensor) -> torch.Tensor:
            for layer in self.layers[start : start + size]:
                h = layer(h)
            return h

        for start in range(0, len(self.layers), size):
            x = checkpoint(segment, start, boundaries[start], use_reentrant=False)
            boundaries[start + size] = x.detach()  # mistake: CKPT121
        return x


def main() -> None:
    stack = Stack(depth=9)
    stack(torch.randn(4, 16)).pow(2).mean().backward()
    trained = [layer[0].weight.grad is not None for layer in stack.layers]
    assert trained == [False] * 6 + [True] * 3
    print(f"confirmed: {trained.count(False)} of {len(trained)} layers have no gradient")


if __name__ == "__main__":
    main()
