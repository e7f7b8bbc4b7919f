"""Meta-learning with a checkpointed network: the outer gradient is computed with the parameters of before the step."""

import torch
from _symptom import confirm
from torch import nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        return self.body(x)


def adapted(net, x, y):
    loss = nn.functional.mse_loss(net.body(x), y)
    steps = torch.autograd.grad(loss, list(net.parameters()))
    return {
        name: (weight - 0.5 * step).detach().requires_grad_()
        for (name, weight), step in zip(net.named_parameters(), steps, strict=True)
    }


def with_checkpointing(x, y):
    net = Checkpointed()
    fast = adapted(net, x, y)
    loss = nn.functional.mse_loss(functional_call(net, fast, (x,)), y)  # mistake: CKPT119
    loss.backward()
    return loss.item(), fast["body.0.weight"].grad


def without_checkpointing(x, y):
    net = Plain()
    fast = adapted(net, x, y)
    loss = nn.functional.mse_loss(functional_call(net, fast, (x,)), y)
    loss.backward()
    return loss.item(), fast["body.0.weight"].grad


def main():
    x = torch.randn(16, 8)
    y = 3 * torch.randn(16, 1)
    (loss, wanted), (same_loss, found) = without_checkpointing(x, y), with_checkpointing(x, y)
    error = float((found - wanted).norm() / wanted.norm())
    confirm(
        loss == same_loss and error > 0.1, f"the loss is the same bit by bit, the outer gradient is {error:.0%} off"
    )


if __name__ == "__main__":
    main()
