"""Layers of torchvision's models that a program puts into a checkpoint of its own, by whichever way they are named."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
import torchvision
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import checkpoint

class Recompute(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)

net = torchvision.models.resnet50(weights="IMAGENET1K_V2")
{0}
"""
WAYS = {
    "an attribute": "net.layer1 = Recompute(net.layer1)",
    "by name": 'for name in ("layer1", "layer2"):\n    setattr(net, name, Recompute(getattr(net, name)))',
    "in a list": 'for name in ["layer3"]:\n    stage = getattr(net, name)\n    setattr(net, name, Recompute(stage))',
    "by number": 'for i in range(1, 5):\n    setattr(net, f"layer{i}", Recompute(getattr(net, f"layer{i}")))',
    "a wrapper": 'for name in ("layer1", "layer2"):\n    setattr(net, name, checkpoint_wrapper(getattr(net, name)))',
    "get_submodule": 'for name in ("layer1", "layer2"):\n    net.add_module(name, Recompute(net.get_submodule(name)))',
    "the head too": 'net.fc = nn.Linear(2048, 5)\nfor name in ("layer1", "layer2"):\n'
    "    setattr(net, name, Recompute(getattr(net, name)))",
}
RIGHT = {
    "group norms from the start": "net = torchvision.models.resnet50(norm_layer=lambda c: nn.GroupNorm(32, c))\n"
    'for name in ("layer1", "layer2"):\n    setattr(net, name, Recompute(getattr(net, name)))',
    "other stages": "def stage(a, b):\n    return nn.Sequential(nn.Conv2d(a, b, 3), nn.GroupNorm(8, b))\n"
    'for name in ("layer1", "layer2"):\n    setattr(net, name, Recompute(stage(64, 64)))',
    "converted before": "from mine import grouped\nfor i in range(1, 5):\n"
    '    setattr(net, f"layer{i}", grouped(getattr(net, f"layer{i}")))\nnet.layer1 = Recompute(net.layer1)',
    "converted by name": 'from mine import grouped\nfor name in ("layer1", "layer2"):\n'
    "    setattr(net, name, grouped(getattr(net, name)))\nnet.layer1 = Recompute(net.layer1)",
    "norms by name": 'for block in net.layer1:\n    for name in ("bn1", "bn2", "bn3"):\n'
    "        setattr(block, name, nn.GroupNorm(32, getattr(block, name).num_features))\n"
    "    block.downsample = None\n"
    'for name in ("layer1",):\n    setattr(net, name, Recompute(getattr(net, name)))',
    "blocks in their place": "class Grouped(nn.Module):\n    def __init__(self, block):\n        super().__init__()\n"
    "        self.conv, self.norm = block.conv1, nn.GroupNorm(32, 64)\n"
    "    def forward(self, x):\n        return self.norm(self.conv(x))\n"
    "for i in range(len(net.layer1)):\n    net.layer1[i] = Grouped(net.layer1[i])\n"
    "net.layer1 = Recompute(net.layer1)",
    "in eval mode": "net.layer1 = Recompute(net.layer1.eval())",
    "any name": "for name in names:\n    setattr(net, name, replaced(name))\nnet.layer1 = Recompute(net.layer1)",
}


def codes(way: str) -> set[str]:
    return {found.code for found in check_source(SCRIPT.replace("{0}", way))}


@pytest.mark.parametrize("way", WAYS)
def test_its_norms_update_twice(way: str) -> None:
    assert "CKPT106" in codes(WAYS[way])


@pytest.mark.parametrize("way", RIGHT)
def test_other_norms_do_not(way: str) -> None:
    assert "CKPT106" not in codes(RIGHT[way])
