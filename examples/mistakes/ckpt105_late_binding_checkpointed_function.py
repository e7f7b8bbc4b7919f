"""A checkpointed lambda reads the loop variable: the backward pass runs the last layer every time."""

import torch
from _symptom import confirm, gradient_error, gradients
from torch import nn
from torch.utils.checkpoint import checkpoint


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)) for _ in range(4))

    def forward(self, x, mask):
        for layer in self.layers:
            x = x + checkpoint(lambda h: layer(h) * mask, x, use_reentrant=False)  # mistake: CKPT105
        return x


class Plain(Encoder):
    def forward(self, x, mask):
        for layer in self.layers:
            x = x + layer(x) * mask
        return x


def main():
    x, mask = torch.randn(8, 16, requires_grad=True), torch.rand(8, 1)
    model, plain = Encoder(), Plain()
    loss, wanted_loss = model(x, mask).pow(2).mean(), plain(x, mask).pow(2).mean()
    error = gradient_error(gradients(model, loss), gradients(plain, wanted_loss))
    confirm(
        error > 0.5 and torch.equal(loss, wanted_loss),
        f"gradients are off by {error:.0%}, the loss by {float(loss - wanted_loss)}",
    )


if __name__ == "__main__":
    main()
