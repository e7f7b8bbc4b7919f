"""`backward(inputs=...)` to leave the input alone, over reentrant blocks: the blocks never move."""

import torch
from _symptom import confirm, gradients, missing
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 1)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16)) for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=True)
        return self.head(x)


def main():
    net, x, y = Net(), torch.randn(16, 16, requires_grad=True), torch.randn(16, 1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    losses = []
    for _ in range(10):
        loss = nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward(inputs=list(net.parameters()))  # mistake: CKPT120
        lost = missing(gradients(net))
        optimizer.step()
        losses.append(loss.item())
    confirm(
        losses[-1] < losses[0] and len(lost) == 12,
        f"the loss falls from {losses[0]:.2f} to {losses[-1]:.2f}, and {len(lost)} of 12 block tensors got no gradient",
    )


if __name__ == "__main__":
    main()
