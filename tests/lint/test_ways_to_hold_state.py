"""State behind an attribute: an object or a dict that `self` holds, counted in by regions or set by loops around them."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

TRAINING = """
net = Net()
opt = torch.optim.Adam(net.parameters())
for x in torch.load("x.pt"):
    net(x).mean().backward()
    opt.step()
    opt.zero_grad()
"""
WRONG = {
    "CKPT107b": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin = nn.Linear(d, d)
        self.state = {"n": 0}

    def forward(self, x):
        self.state["n"] = self.state["n"] + 1
        return self.lin(x) / self.state["n"]

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return x
""",
    "CKPT107c": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Count:
    n = 0

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin = nn.Linear(d, d)
        self.count = Count()

    def forward(self, x):
        self.count.n += 1
        return self.lin(x) / self.count.n

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return x
""",
    "CKPT105a": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Ctx:
    level = 0

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.ctx = Ctx()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for i in range(3):
            self.ctx.level = i
            x = checkpoint(self.run, x, use_reentrant=False)
        return x

    def run(self, x):
        return self.blocks[self.ctx.level](x)
""",
    "CKPT105b": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Ctx:
    level = 0

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.ctx = {"level": 0}
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for i in range(3):
            self.ctx["level"] = i
            x = checkpoint(self.run, x, use_reentrant=False)
        return x

    def run(self, x):
        return self.blocks[self.ctx["level"]](x)
""",
    "CKPT105e": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Inner(nn.Module):
    def forward(self, x, owner):
        return owner.now(x)

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            self.now = block
            x = self.inner(x)
        return x

    def inner(self, x):
        return checkpoint(lambda h: self.now(h), x, use_reentrant=False)
""",
}
RIGHT = {
    "CKPT107b_reset": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin = nn.Linear(d, d)
        self.state = {"n": 0}

    def forward(self, x):
        self.state = {"n": 0}
        self.state["n"] = self.state["n"] + 1
        return self.lin(x) / self.state["n"]

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return x
""",
    "CKPT107b_aug_reset": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin = nn.Linear(d, d)
        self.state = {"n": 0}

    def forward(self, x):
        self.state = {"n": 0}
        self.state["n"] += 1
        return self.lin(x) / self.state["n"]

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return x
""",
    "CKPT107c_reset": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Count:
    n = 0

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin = nn.Linear(d, d)
        self.count = Count()

    def forward(self, x):
        self.count.n = 0
        self.count.n += 1
        return self.lin(x) / self.count.n

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return x
""",
    "CKPT107c_new": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Count:
    n = 0

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin = nn.Linear(d, d)
        self.count = Count()

    def forward(self, x):
        self.count = Count()
        self.count.n += 1
        return self.lin(x) / self.count.n

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return x
""",
    "CKPT107c_method": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Count:
    n = 0
    def clear(self):
        self.n = 0

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin = nn.Linear(d, d)
        self.count = Count()

    def forward(self, x):
        self.count.clear()
        self.count.n += 1
        return self.lin(x) / self.count.n

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return x
""",
    "CKPT107c_only": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Count:
    n = 0

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin = nn.Linear(d, d)
        self.count = Count()

    def forward(self, x):
        self.count.n += 1
        return self.lin(x)

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return x
""",
    "CKPT107c_local": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Count:
    n = 0

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin = nn.Linear(d, d)
        self.count = Count()

    def forward(self, x):
        count = self.count
        count.n = 1
        self.count.n += 1
        return self.lin(x) / self.count.n

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return x
""",
    "CKPT107c_out": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Count:
    n = 0

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin = nn.Linear(d, d)
        self.count = Count()

    def forward(self, x):
        return self.lin(x) / self.count.n

    def tick(self):
        self.count.n += 1

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return x
""",
    "CKPT105a_arg": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Ctx:
    level = 0

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.ctx = Ctx()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for i in range(3):
            self.ctx.level = i
            x = checkpoint(self.run, x, i, use_reentrant=False)
        return x

    def run(self, x, i):
        return self.blocks[i](x)
""",
    "CKPT105a_sets": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Ctx:
    level = 0

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.ctx = Ctx()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for i in range(3):
            self.ctx.level = i
            x = checkpoint(self.run, x, i, use_reentrant=False)
        return x

    def run(self, x, i):
        self.ctx.level = i
        return self.blocks[self.ctx.level](x)
""",
    "CKPT105a_new": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Ctx:
    level = 0

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.ctx = Ctx()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for i in range(3):
            self.ctx.level = i
            x = checkpoint(self.run, x, i, use_reentrant=False)
        return x

    def run(self, x, i):
        self.ctx = Ctx(); self.ctx.level = i
        return self.blocks[self.ctx.level](x)
""",
    "CKPT105a_same": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Ctx:
    level = 0

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.ctx = Ctx()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for i in range(3):
            self.ctx.level = 1
            x = checkpoint(self.run, x, use_reentrant=False)
        return x

    def run(self, x):
        return self.blocks[self.ctx.level](x)
""",
    "CKPT105a_last": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Ctx:
    level = 0

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.ctx = Ctx()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for i in range(3):
            self.ctx.level = i
            if i < 2:
                x = self.run(x)
                continue
            x = checkpoint(self.run, x, use_reentrant=False)
        return x

    def run(self, x):
        return self.blocks[self.ctx.level](x)
""",
    "CKPT105a_log": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Ctx:
    level = 0

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.ctx = Ctx()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for i in range(3):
            self.ctx.level = i
            x = checkpoint(self.run, x, use_reentrant=False)
        return x

    def run(self, x):
        print(self.ctx.level)
        return self.blocks[0](x)
""",
    "CKPT105b_arg": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Ctx:
    level = 0

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.ctx = {"level": 0}
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for i in range(3):
            self.ctx["level"] = i
            x = checkpoint(self.run, x, i, use_reentrant=False)
        return x

    def run(self, x, i):
        return self.blocks[i](x)
""",
    "CKPT105b_log": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Ctx:
    level = 0

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.ctx = {"level": 0}
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for i in range(3):
            self.ctx["level"] = i
            x = checkpoint(self.run, x, use_reentrant=False)
        return x

    def run(self, x):
        print(self.ctx["level"])
        return self.blocks[0](x)
""",
    "CKPT105e_given": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Inner(nn.Module):
    def forward(self, x, owner):
        return owner.now(x)

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            self.now = block
            x = self.inner(x)
        return x

    def inner(self, x):
        return checkpoint(self.now, x, use_reentrant=False)
""",
    "CKPT105e_default": """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Inner(nn.Module):
    def forward(self, x, owner):
        return owner.now(x)

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            self.now = block
            x = self.inner(x)
        return x

    def inner(self, x):
        return checkpoint(lambda h, now=self.now: now(h), x, use_reentrant=False)
""",
}


def codes(model):
    return [finding.code for finding in check_source(model + TRAINING)]


@pytest.mark.parametrize("way", WRONG)
def test_the_second_run_finds_other_state(way):
    assert way[:7] in codes(WRONG[way])


@pytest.mark.parametrize("way", RIGHT)
def test_both_runs_find_the_same(way):
    assert way[:7] not in codes(RIGHT[way])
