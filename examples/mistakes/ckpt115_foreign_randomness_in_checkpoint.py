"""Stochastic depth with Python's `random`: the recomputation skips other layers than the forward pass did."""

import random

import torch
from _symptom import confirm, failure, gradient_error, gradients
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        if self.training and random.random() < 0.3:
            return x
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self, checkpointing):
        super().__init__()
        torch.manual_seed(0)
        self.checkpointing = checkpointing
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            if self.checkpointing:
                x = checkpoint(block, x, use_reentrant=True)  # mistake: CKPT115
            else:
                x = block(x)
        return x


def step(checkpointing, seed, x):
    net = Net(checkpointing)
    random.seed(seed)
    loss = net(x).square().mean()
    problem = failure(loss.backward)
    zeros = {name: torch.zeros_like(weight) for name, weight in net.named_parameters()}
    found = {name: zeros[name] if grad is None else grad for name, grad in gradients(net).items()}
    return loss.item(), found, problem


def main():
    x = torch.randn(8, 16, requires_grad=True)
    wrong = 0
    for seed in range(20):
        (loss, wanted, _), (same_loss, found, problem) = step(False, seed, x), step(True, seed, x)
        assert loss == same_loss and not problem
        nonzero = any(grad.norm() > 0 for grad in wanted.values())
        wrong += nonzero and gradient_error(found, wanted) > 0.1
    confirm(wrong > 5, f"in {wrong} of 20 steps gradients are more than 10% off, the loss is right, nothing is said")


if __name__ == "__main__":
    main()
