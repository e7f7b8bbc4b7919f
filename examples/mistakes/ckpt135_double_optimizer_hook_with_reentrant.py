"""A shared block, reentrant checkpoints, and the optimizer step fused into the backward pass."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Universal(nn.Module):
    def __init__(self, checkpointing: bool) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(16, 16), nn.Tanh())
        self.checkpointing = checkpointing

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            if self.checkpointing:
                x = checkpoint(self.block, x, use_reentrant=True)  # mistake: CKPT135
            else:
                x = self.block(x)
        return x


def train(checkpointing: bool) -> tuple[int, torch.Tensor]:
    torch.manual_seed(0)
    model = Universal(checkpointing)
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.5) for parameter in model.parameters()}
    steps: list[str] = []

    def step(parameter: nn.Parameter) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()
        steps.append("step")

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    model(torch.randn(4, 16, requires_grad=True)).pow(2).mean().backward()
    return len(steps), model.block[0].weight.detach()


def main() -> None:
    (once, wanted), (often, got) = train(checkpointing=False), train(checkpointing=True)
    assert (once, often) == (2, 6)
    assert not torch.allclose(got, wanted, rtol=1e-4)
    print(f"confirmed: {often} optimizer steps in one backward pass instead of {once}, and other weights after it")


if __name__ == "__main__":
    main()
