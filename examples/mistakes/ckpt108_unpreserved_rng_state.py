"""A checkpoint that saves the few microseconds of restoring the random state: dropout draws another mask."""

import torch
from _symptom import confirm, gradient_error, gradients
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.dropout(self.down(torch.relu(self.up(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.checkpointing = False
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            if self.checkpointing:
                x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)  # mistake: CKPT108
            else:
                x = block(x)
        return x


def main():
    torch.manual_seed(0)
    net, x, target = Net(), torch.randn(8, 32), torch.randn(8, 32)
    losses, found = [], []
    for net.checkpointing in (False, True):
        torch.manual_seed(1)
        loss = nn.functional.mse_loss(net(x), target)
        losses.append(loss.item())
        found.append(gradients(net, loss))
    error = gradient_error(found[1], found[0])
    confirm(losses[0] == losses[1] and error > 0.3, f"the loss is the same bit by bit, gradients are {error:.0%} off")


if __name__ == "__main__":
    main()
