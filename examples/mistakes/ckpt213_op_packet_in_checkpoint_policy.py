"""A selective policy that names operators without their overload saves none of them."""

from functools import partial

import torch
from _symptom import confirm
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


def save_matmuls(ctx, op, *args, **kwargs):
    if op == torch.ops.aten.addmm:  # mistake: CKPT213
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


def save_matmuls_by_overload(ctx, op, *args, **kwargs):
    if op == torch.ops.aten.addmm.default:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


def kept(policy):
    """How many operators the policy keeps the output of."""
    decisions = []

    def counting(*args, **kwargs):
        decisions.append(policy(*args, **kwargs))
        return decisions[-1]

    block = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))
    contexts = partial(create_selective_checkpoint_contexts, counting)
    checkpoint(block, torch.randn(4, 16, requires_grad=True), use_reentrant=False, context_fn=contexts).sum().backward()
    return decisions.count(CheckpointPolicy.MUST_SAVE)


def main():
    packet, overload = kept(save_matmuls), kept(save_matmuls_by_overload)
    confirm(
        packet == 0 < overload,
        f"the outputs of {packet} of 2 matrix products are saved; with the overload named {overload}",
    )


if __name__ == "__main__":
    main()
