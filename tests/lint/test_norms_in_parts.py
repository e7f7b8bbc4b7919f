"""BatchNorm in slices of containers and in branches that objects take or leave."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
"""

WRONG = {
    "slice const": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3))
    def forward(self, x):
        return checkpoint(self.features[:3], x, use_reentrant=False)
""",
    "slice half": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))
        self.cut = len(self.features) // 2
    def forward(self, x):
        x = checkpoint(self.features[: self.cut], x, use_reentrant=False)
        return checkpoint(self.features[self.cut :], x, use_reentrant=False)
""",
    "star slice": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)]
        self.head = nn.Sequential(*layers[:2])
        self.tail = nn.Sequential(*layers[2:])
    def forward(self, x):
        x = checkpoint(self.head, x, use_reentrant=False)
        return self.tail(x)
""",
    "loop slice": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)
    def forward(self, x):
        return self.bn(self.conv(x)).relu()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(6)])
    def forward(self, x):
        for block in self.blocks[:3]:
            x = checkpoint(block, x, use_reentrant=False)
        for block in self.blocks[3:]:
            x = block(x)
        return x
""",
    "islice": """
from itertools import islice
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)
    def forward(self, x):
        return self.bn(self.conv(x)).relu()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(6)])
    def forward(self, x):
        for block in islice(self.blocks, 3):
            x = checkpoint(block, x, use_reentrant=False)
        return x
""",
    "function over slice": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)
    def forward(self, x):
        return self.bn(self.conv(x)).relu()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(6)])
    def run(self, start, end):
        def custom(x):
            for block in self.blocks[start:end]:
                x = block(x)
            return x
        return custom
    def forward(self, x):
        for start in range(0, 6, 2):
            x = checkpoint(self.run(start, start + 2), x, use_reentrant=False)
        return x
""",
    "downsample optional": """
class Block(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(i, o, 3, stride), nn.GroupNorm(1, o)
        self.downsample = nn.Sequential(nn.Conv2d(i, o, 1, stride), nn.BatchNorm2d(o)) if stride != 1 else None
    def forward(self, x):
        y = self.norm(self.conv(x))
        return y + self.downsample(x) if self.downsample is not None else y
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = Block(3, 8, 2), Block(8, 8, 1)
    def forward(self, x):
        x = checkpoint(self.a, x, use_reentrant=False)
        return checkpoint(self.b, x, use_reentrant=False)
""",
    "optional norm true": """
class Block(nn.Module):
    def __init__(self, d, use_bn):
        super().__init__()
        self.conv = nn.Conv2d(d, d, 3)
        self.use_bn = use_bn
        if use_bn:
            self.bn = nn.BatchNorm2d(d)
    def forward(self, x):
        x = self.conv(x)
        if self.use_bn:
            x = self.bn(x)
        return x
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Block(3, True)
    def forward(self, x):
        return checkpoint(self.a, x, use_reentrant=False)
""",
    "optional list append": """
def conv(i, o, bn=True):
    layers = [nn.Conv2d(i, o, 3)]
    if bn:
        layers.append(nn.BatchNorm2d(o))
    layers.append(nn.ReLU())
    return nn.Sequential(*layers)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = conv(3, 8)
        self.b = conv(8, 8, bn=False)
    def forward(self, x):
        x = checkpoint(self.a, x, use_reentrant=False)
        return checkpoint(self.b, x, use_reentrant=False)
""",
    "shortcut seq": """
class Block(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.conv = nn.Conv2d(i, o, 3, padding=1)
        self.shortcut = nn.Sequential()
        if i != o:
            self.shortcut = nn.Sequential(nn.Conv2d(i, o, 1), nn.BatchNorm2d(o))
    def forward(self, x):
        return self.conv(x) + self.shortcut(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Block(3, 8)
    def forward(self, x):
        return checkpoint(self.a, x, use_reentrant=False)
""",
    "chained": """
from itertools import chain
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)
    def forward(self, x):
        return self.bn(self.conv(x)).relu()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.ModuleList([Block() for _ in range(6)])
        self.b = nn.ModuleList([Block() for _ in range(6)])
    def forward(self, x):
        for block in chain(self.a, self.b):
            x = checkpoint(block, x, use_reentrant=False)
        return x
""",
    "list of two kinds": """
class Block(nn.Module):
    def __init__(self, d, norm):
        super().__init__()
        self.conv = nn.Conv2d(d, d, 3)
        self.norm = nn.BatchNorm2d(d) if norm else None
    def forward(self, x):
        x = self.conv(x)
        return x if self.norm is None else self.norm(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(8, False), Block(8, True)])
    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x
""",
}

RIGHT = {
    "slice without": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3))
    def forward(self, x):
        x = self.features[:2](x)
        return checkpoint(self.features[2:], x, use_reentrant=False)
""",
    "star slice ok": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)]
        self.head = nn.Sequential(*layers[:2])
        self.tail = nn.Sequential(*layers[2:])
    def forward(self, x):
        x = self.head(x)
        return checkpoint(self.tail, x, use_reentrant=False)
""",
    "downsample none": """
class Block(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(i, o, 3, stride), nn.GroupNorm(1, o)
        self.downsample = nn.Sequential(nn.Conv2d(i, o, 1, stride), nn.BatchNorm2d(o)) if stride != 1 else None
    def forward(self, x):
        y = self.norm(self.conv(x))
        return y + self.downsample(x) if self.downsample is not None else y
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = Block(8, 8, 1)
    def forward(self, x):
        return checkpoint(self.b, x, use_reentrant=False)
""",
    "optional norm false": """
class Block(nn.Module):
    def __init__(self, d, use_bn):
        super().__init__()
        self.conv = nn.Conv2d(d, d, 3)
        self.use_bn = use_bn
        if use_bn:
            self.bn = nn.BatchNorm2d(d)
    def forward(self, x):
        x = self.conv(x)
        if self.use_bn:
            x = self.bn(x)
        return x
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Block(3, False)
    def forward(self, x):
        return checkpoint(self.a, x, use_reentrant=False)
""",
    "optional list no": """
def conv(i, o, bn=True):
    layers = [nn.Conv2d(i, o, 3)]
    if bn:
        layers.append(nn.BatchNorm2d(o))
    layers.append(nn.ReLU())
    return nn.Sequential(*layers)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = conv(8, 8, bn=False)
    def forward(self, x):
        return checkpoint(self.b, x, use_reentrant=False)
""",
    "optional arg open": """
class Block(nn.Module):
    def __init__(self, d, norm=None):
        super().__init__()
        self.conv = nn.Conv2d(d, d, 3)
        self.norm = nn.BatchNorm2d(d) if norm == "bn" else nn.Identity()
    def forward(self, x):
        return self.norm(self.conv(x))
class Net(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.a = Block(3, norm)
    def forward(self, x):
        return checkpoint(self.a, x, use_reentrant=False)
""",
    "shortcut seq same": """
class Block(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.conv = nn.Conv2d(i, o, 3, padding=1)
        self.shortcut = nn.Sequential()
        if i != o:
            self.shortcut = nn.Sequential(nn.Conv2d(i, o, 1), nn.BatchNorm2d(o))
    def forward(self, x):
        return self.conv(x) + self.shortcut(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Block(8, 8)
    def forward(self, x):
        return checkpoint(self.a, x, use_reentrant=False)
""",
    "optional set later": """
class Block(nn.Module):
    def __init__(self, d, use_bn):
        super().__init__()
        self.conv = nn.Conv2d(d, d, 3)
        self.use_bn = use_bn
        self.bn = nn.BatchNorm2d(d)
    def forward(self, x):
        x = self.conv(x)
        if self.use_bn:
            x = self.bn(x)
        return x
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Block(3, True)
    def plain(self):
        self.a.use_bn = False
    def forward(self, x):
        return checkpoint(self.a, x, use_reentrant=False)
""",
}


def codes(case: str) -> set[str]:
    return {finding.code for finding in check_source(HEAD + case, "train.py")}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_mistake_is_found(case):
    assert "CKPT106" in codes(case)


@pytest.mark.parametrize("case", RIGHT.values(), ids=RIGHT)
def test_its_right_neighbour_is_not(case):
    assert "CKPT106" not in codes(case)
