"""A saved product is scaled in place, and torch was told not to mind."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.out = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.linear(x)
        gate = torch.sin(h)
        h.mul_(2)
        return self.out(gate + torch.cos(h))


def save_products(ctx: object, op: object, *args: object, **kwargs: object) -> CheckpointPolicy:
    is_product = op is torch.ops.aten.addmm.default
    return CheckpointPolicy.MUST_SAVE if is_product else CheckpointPolicy.PREFER_RECOMPUTE


def gradient(checkpointed: bool) -> torch.Tensor:
    torch.manual_seed(0)
    block, x = Block(), torch.randn(8, 16)
    select = create_selective_checkpoint_contexts
    contexts = partial(select, save_products, allow_cache_entry_mutation=True)  # mistake: CKPT126
    y = checkpoint(block, x, use_reentrant=False, context_fn=contexts) if checkpointed else None
    if y is None:
        h = block.linear(x)
        y = block.out(torch.sin(h) + torch.cos(2 * h))
    y.sum().backward()
    assert block.linear.weight.grad is not None
    return block.linear.weight.grad


def main() -> None:
    wanted, got = gradient(checkpointed=False), gradient(checkpointed=True)
    error = ((got - wanted).norm() / wanted.norm()).item()
    assert error > 0.1
    print(f"confirmed: no error, and the gradient is {error:.0%} off")


if __name__ == "__main__":
    main()
