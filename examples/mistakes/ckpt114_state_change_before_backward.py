"""The step moved in front of the backward pass: without checkpointing torch refuses, with it nobody says a word."""

import torch
from _symptom import confirm, failure, gradient_error, gradients
from torch import nn
from torch.utils.checkpoint import checkpoint


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False)


def wrong_order(x):
    net = Checkpointed()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    net(x).square().mean().backward()
    loss = net(x).square().mean()
    plain = net.body(x).square().mean()
    wanted = dict(zip(gradients(net), torch.autograd.grad(plain, list(net.parameters())), strict=True))
    optimizer.step()  # mistake: CKPT114
    optimizer.zero_grad()
    loss.backward()
    return gradient_error(gradients(net), wanted)


def without_checkpointing(x):
    net = Checkpointed().body
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    net(x).square().mean().backward()
    loss = net(x).square().mean()
    optimizer.step()
    loss.backward()


def main():
    x = 5 * torch.randn(8, 16)
    error, refusal = wrong_order(x), failure(lambda: without_checkpointing(x))
    confirm(
        error > 0.1 and "inplace operation" in refusal,
        f"gradients are {error:.0%} off without a word; without checkpointing torch raises {refusal.split(':')[0]}",
    )


if __name__ == "__main__":
    main()
