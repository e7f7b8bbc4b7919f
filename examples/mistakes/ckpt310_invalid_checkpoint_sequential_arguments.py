"""More segments than modules, and a mask that `checkpoint_sequential` has no place for."""

import torch
from _symptom import confirm, failure
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(16, 16)
        self.layers = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))

    def forward(self, x):
        return checkpoint_sequential(self.layers, 4, self.embed(x), use_reentrant=False)  # mistake: CKPT310


class Masked(Encoder):
    def forward(self, x, mask=None):
        x = self.embed(x)
        return checkpoint_sequential(self.layers, 2, x, use_reentrant=False, mask=mask)  # mistake: CKPT310


def main():
    found = [failure(lambda net=net: net()(torch.randn(4, 16))) for net in (Encoder, Masked)]
    confirm(all(problem.startswith("ValueError") for problem in found), "; ".join(found))


if __name__ == "__main__":
    main()
