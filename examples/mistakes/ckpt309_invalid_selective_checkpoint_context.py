"""The contexts themselves where a function that makes them is due."""

import torch
from _symptom import confirm, failure
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


def save_matmuls(ctx, op, *args, **kwargs):
    if op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)) for _ in range(3))

    def forward(self, x):
        contexts = create_selective_checkpoint_contexts(save_matmuls)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, context_fn=contexts)  # mistake: CKPT309
        return x


class Shared(Encoder):
    def forward(self, x):
        contexts = create_selective_checkpoint_contexts(save_matmuls)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, context_fn=lambda: contexts)  # mistake: CKPT309
        return x


def main():
    found = [failure(lambda net=net: net()(torch.randn(4, 16)).sum().backward()) for net in (Encoder, Shared)]
    confirm(found[0].startswith("TypeError") and found[1].startswith("RuntimeError"), "; ".join(found))


if __name__ == "__main__":
    main()
