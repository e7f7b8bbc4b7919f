"""A custom function reads its saved tensors twice: it works until a layer that uses it is checkpointed."""

import torch
from _symptom import confirm, failure
from torch import nn
from torch.utils.checkpoint import checkpoint


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, gate):
        ctx.save_for_backward(value, gate)
        return value * torch.sigmoid(gate)

    @staticmethod
    def backward(ctx, grad):
        grad_value = grad * torch.sigmoid(ctx.saved_tensors[1])
        value, gate = ctx.saved_tensors  # mistake: CKPT317
        opened = torch.sigmoid(gate)
        return grad_value, grad * value * opened * (1 - opened)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.value = nn.Linear(16, 16)
        self.gate = nn.Linear(16, 16)

    def forward(self, x):
        return x + Gate.apply(self.value(x), self.gate(x))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def main():
    loss = Encoder()(torch.randn(4, 16)).sum()
    problem = failure(loss.backward)
    confirm("already unpacked once" in problem, problem)


if __name__ == "__main__":
    main()
