"""Cross-attention context in a dict: every reentrant segment goes back through its graph, the first one frees it."""

import torch
from _symptom import confirm, failure
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x, extra):
        return x + (self.linear(x) * extra["context"]).tanh()


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(16, 16)
        self.context = nn.Linear(8, 16)
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x, condition):
        x = self.embed(x)
        context = self.context(condition)
        for block in self.blocks:
            x = checkpoint(block, x, {"context": context}, use_reentrant=True)  # mistake: CKPT307
        return x


def main():
    loss = Decoder()(torch.randn(4, 16), torch.randn(4, 8)).sum()
    problem = failure(loss.backward)
    confirm("backward through the graph a second time" in problem, problem.split(" (")[0])


if __name__ == "__main__":
    main()
