"""BatchNorm inside a checkpointed stage counts every batch twice."""

import torch
from _symptom import confirm
from torch import nn
from torch.utils.checkpoint import checkpoint


class Stage(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return self.norm(self.conv(x)).relu()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stages = nn.ModuleList(Stage(8) for _ in range(2))

    def forward(self, x):
        for stage in self.stages:
            x = checkpoint(stage, x, use_reentrant=False)  # mistake: CKPT106
        return x


class Plain(Net):
    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return x


def main():
    images = 3 * torch.randn(4, 8, 6, 6) + 1
    norms = []
    for model in (Net(), Plain()):
        model(images).sum().backward()
        norms.append(model.stages[0].norm)
    batches = [int(norm.num_batches_tracked) for norm in norms]
    drift = float((norms[0].running_mean - norms[1].running_mean).norm() / norms[1].running_mean.norm())
    confirm(
        batches == [2, 1] and drift > 0.5,
        f"one step counts as {batches[0]} batches, the running mean is off by {drift:.0%}",
    )


if __name__ == "__main__":
    main()
