"""A mask that is scaled in place inside the region and passed by keyword: it is scaled again in the backward pass."""

import torch
from _symptom import confirm, gradient_error, gradients
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x, mask):
        mask.mul_(0.5)
        return x + self.down(torch.relu(self.up(x * mask)))


class Net(nn.Module):
    def __init__(self, checkpointing):
        super().__init__()
        torch.manual_seed(0)
        self.checkpointing = checkpointing
        self.block, self.head = Block(), nn.Linear(16, 1)

    def forward(self, x, mask):
        if self.checkpointing:
            x = checkpoint(self.block, x, use_reentrant=False, mask=mask)  # mistake: CKPT117
        else:
            x = self.block(x, mask=mask)
        return self.head(x)


def step(checkpointing, x):
    net = Net(checkpointing)
    loss = net(x, torch.ones(8, 1)).square().mean()
    return loss.item(), gradients(net, loss)


def main():
    x = torch.randn(8, 16)
    (loss, wanted), (same_loss, found) = step(False, x), step(True, x)
    error = gradient_error(found, wanted)
    confirm(loss == same_loss and error > 0.2, f"the loss is the same bit by bit, gradients are {error:.0%} off")


if __name__ == "__main__":
    main()
