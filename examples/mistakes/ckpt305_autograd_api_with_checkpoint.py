"""A gradient penalty through a reentrant checkpoint."""

import torch
from _symptom import confirm, failure
from torch import nn
from torch.utils.checkpoint import checkpoint


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.SiLU()) for _ in range(2))
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        for stage in self.stages:
            x = checkpoint(stage, x, use_reentrant=True)
        return self.head(x)


def gradient_penalty(real, fake):
    critic = Critic()
    mixed = torch.lerp(real, fake, torch.rand(len(real), 1)).requires_grad_()
    score = critic(mixed)
    (gradient,) = torch.autograd.grad(score.sum(), mixed, create_graph=True)  # mistake: CKPT305
    return (gradient.norm(dim=1) - 1).pow(2).mean()


def main():
    problem = failure(lambda: gradient_penalty(torch.randn(4, 16), torch.randn(4, 16)))
    confirm("RuntimeError" in problem, problem)


if __name__ == "__main__":
    main()
