"""A checkpoint around one activation keeps the input that the activation would keep anyway."""

import torch
from _symptom import Executions, confirm, saved_bytes
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, checkpointing):
        super().__init__()
        self.checkpointing = checkpointing
        self.up = nn.Linear(16, 64)
        self.act = nn.GELU()
        self.down = nn.Linear(64, 16)

    def forward(self, x):
        h = self.up(x)
        h = checkpoint(self.act, h, use_reentrant=False) if self.checkpointing else self.act(h)  # mistake: CKPT403
        return self.down(h)


def measure(checkpointing):
    block = Block(checkpointing)
    with Executions(block.act) as runs:
        with saved_bytes() as saved:
            loss = block(torch.randn(8, 16)).sum()
        loss.backward()
    # The checkpoint holds its input, the output of `up`, itself.
    return saved() + checkpointing * 8 * 64 * 4, runs.count


def main():
    with_checkpoint, twice = measure(True)
    without, once = measure(False)
    confirm(
        with_checkpoint >= without and (once, twice) == (1, 2),
        f"{with_checkpoint} bytes are kept, {without} without the checkpoint, and the activation runs {twice} times",
    )


if __name__ == "__main__":
    main()
