"""Attributes that a loop sets for the checkpoints in it: ways to set them, and what keeps each with its iteration."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
from functools import partial
from torch import nn
from torch.utils.checkpoint import checkpoint

class Step(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        self.step = 0
        self.table = nn.Parameter(torch.randn(depth, dim))
        self.lin = nn.Linear(dim, dim)

    def set_step(self, step):
        self.step = step

    def forward(self, x):
        return torch.tanh(self.lin(x) * self.table[self.step])

class Flow(nn.Module):
    def __init__(self, dim=8, depth=6):
        super().__init__()
        self.nets = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.block = Step(dim, depth)
        self.blocks = nn.ModuleList(Step(dim, depth) for _ in range(depth))
        self.scales = nn.Parameter(torch.ones(depth, dim))
        self.cursor, self.layer, self.seen, self.depth = 0, None, [], depth

    def _couple(self, z):
        return z + torch.tanh(self.nets[self.cursor](z))

    def _run(self, z):
        return torch.tanh(self.layer(z))

    def _select(self, level):
        self.cursor = level

    def remat(self, function, *args):
        return checkpoint(function, *args, use_reentrant=False)

BODY

flow = Flow()
opt = torch.optim.Adam(flow.parameters(), 1e-3)
for x in torch.load("windows.pt"):
    opt.zero_grad()
    flow(x).mean().backward()
    opt.step()
"""
LATE = {
    "method": """\
    def forward(self, z):
        for level, net in enumerate(self.nets):
            self.cursor = level
            z = checkpoint(self._couple, z, use_reentrant=False)
        return z
""",
    "shared": """\
    def forward(self, z):
        for i in range(self.depth):
            self.block.step = i
            z = checkpoint(self.block, z, use_reentrant=False)
        return z
""",
    "setter": """\
    def forward(self, z):
        for level, net in enumerate(self.nets):
            self._select(level)
            z = checkpoint(self._couple, z, use_reentrant=False)
        return z
""",
    "shared_setter": """\
    def forward(self, z):
        for i in range(self.depth):
            self.block.set_step(i)
            z = checkpoint(self.block, z, use_reentrant=False)
        return z
""",
    "lambda": """\
    def forward(self, z):
        for level, net in enumerate(self.nets):
            self.cursor = level
            z = checkpoint(lambda h: self._couple(h), z, use_reentrant=False)
        return z
""",
    "aug": """\
    def forward(self, z):
        self.cursor = 0
        for _ in self.nets:
            z = checkpoint(self._couple, z, use_reentrant=False)
            self.cursor += 1
        return z
""",
    "partial": """\
    def forward(self, z):
        for level, net in enumerate(self.nets):
            self.cursor = level
            z = checkpoint(partial(self._couple), z, use_reentrant=False)
        return z
""",
    "remat": """\
    def forward(self, z):
        for level, net in enumerate(self.nets):
            self.cursor = level
            z = self.remat(self._couple, z)
        return z
""",
    "setattr": """\
    def forward(self, z):
        for level, net in enumerate(self.nets):
            setattr(self, "cursor", level)
            z = checkpoint(self._couple, z, use_reentrant=False)
        return z
""",
    "while": """\
    def forward(self, z):
        i = 0
        while i < self.depth:
            self.cursor = i
            z = checkpoint(self._couple, z, use_reentrant=False)
            i += 1
        return z
""",
    "layer": """\
    def forward(self, z):
        for net in self.nets:
            self.layer = net
            z = checkpoint(self._run, z, use_reentrant=False)
        return z
""",
    "reset": """\
    def forward(self, z):
        for level, net in enumerate(self.nets):
            self.cursor = level
            z = checkpoint(self._couple, z, use_reentrant=False)
        self.cursor = 0
        return z
""",
    "def": """\
    def forward(self, z):
        def body(h):
            return self._couple(h)
        for level, net in enumerate(self.nets):
            self.cursor = level
            z = checkpoint(body, z, use_reentrant=False)
        return z
""",
    "two": """\
    def _stage(self, z):
        return checkpoint(self._couple, z, use_reentrant=False)

    def forward(self, z):
        for level, net in enumerate(self.nets):
            self.cursor = level
            z = self._stage(z)
        return z
""",
    "reversed": """\
    def forward(self, z):
        for level in reversed(range(self.depth)):
            self.cursor = level
            z = checkpoint(self._couple, z, use_reentrant=False)
        return z
""",
    "tuple": """\
    def forward(self, z):
        for level, net in enumerate(self.nets):
            self.cursor, self.layer = level, net
            z = checkpoint(self._run, z, use_reentrant=False)
        return z
""",
}
RIGHT = {
    "own": """\
    def forward(self, z):
        for i, block in enumerate(self.blocks):
            block.step = i
            z = checkpoint(block, z, use_reentrant=False)
        return z
""",
    "own_setter": """\
    def forward(self, z):
        for i, block in enumerate(self.blocks):
            block.set_step(i)
            z = checkpoint(block, z, use_reentrant=False)
        return z
""",
    "own_index": """\
    def forward(self, z):
        for i in range(self.depth):
            self.blocks[i].step = i
            z = checkpoint(self.blocks[i], z, use_reentrant=False)
        return z
""",
    "argument": """\
    def forward(self, z):
        for level, net in enumerate(self.nets):
            self.cursor = level
            z = checkpoint(lambda h, net: torch.tanh(net(h)), z, net, use_reentrant=False)
        return z
""",
    "itself": """\
    def _at(self, z, level):
        self.cursor = level
        return self._couple(z)

    def forward(self, z):
        for level, net in enumerate(self.nets):
            self.cursor = level
            z = checkpoint(self._at, z, level, use_reentrant=False)
        return z
""",
    "return": """\
    def forward(self, z):
        for level, net in enumerate(self.nets):
            self.cursor = level
            if level == 2:
                return checkpoint(self._couple, z, use_reentrant=False)
            z = self._couple(z)
        return z
""",
    "logged": """\
    def _log(self, z):
        print(self.cursor)
        return torch.tanh(z)

    def forward(self, z):
        for level, net in enumerate(self.nets):
            self.cursor = level
            z = checkpoint(self._log, z, use_reentrant=False)
        return z
""",
    "added": """\
    def _add(self, z):
        return torch.tanh(z) + self.shift

    def forward(self, z):
        for level, net in enumerate(self.nets):
            self.shift = level
            z = checkpoint(self._add, z, use_reentrant=False)
        return z
""",
    "no_grad": """\
    def forward(self, z):
        with torch.no_grad():
            for level, net in enumerate(self.nets):
                self.cursor = level
                z = checkpoint(self._couple, z, use_reentrant=False)
        return self.nets[0](z)
""",
    "same": """\
    def forward(self, z):
        for level, net in enumerate(self.nets):
            self.cursor = 2
            z = checkpoint(self._couple, z, use_reentrant=False)
        return z
""",
    "before": """\
    def forward(self, z):
        self.cursor = int(z[0, 0])
        for _ in range(2):
            z = checkpoint(self._couple, z, use_reentrant=False)
        return z
""",
    "plain": """\
    def forward(self, z):
        for level, net in enumerate(self.nets):
            self.cursor = level
            z = self._couple(z)
        return checkpoint(self.nets[0], z, use_reentrant=False)
""",
    "given": """\
    def block_at(self, z, level):
        self.block.step = level
        return self.block(z)

    def forward(self, z):
        for level, net in enumerate(self.nets):
            z = checkpoint(self.block_at, z, level, use_reentrant=False)
        return z
""",
    "last": """\
    def forward(self, z):
        for level, net in enumerate(self.nets):
            self.cursor = level
            if level == len(self.nets) - 1:
                z = checkpoint(self._couple, z, use_reentrant=False)
            else:
                z = self._couple(z)
        return z
""",
    "bound": """\
    def forward(self, z):
        for level, net in enumerate(self.nets):
            self.layer = net
            z = checkpoint(lambda h, layer=self.layer: torch.tanh(layer(h)), z, use_reentrant=False)
        return z
""",
    "manual": """\
    def forward(self, z):
        for part in z:
            self.cursor = part.size(0)
            checkpoint(self._couple, part, use_reentrant=False).sum().backward()
        return z
""",
    "cond": """\
    def forward(self, z):
        for level, net in enumerate(self.nets):
            if level == 0:
                self.cursor = level
            z = checkpoint(self._couple, z, use_reentrant=False)
        return z
""",
}


def codes(body):
    return [finding.code for finding in check_source(SCRIPT.replace("BODY", body))]


@pytest.mark.parametrize("way", LATE)
def test_the_region_reads_what_the_last_iteration_set(way):
    assert codes(LATE[way]) == ["CKPT105"]


@pytest.mark.parametrize("way", RIGHT)
def test_the_region_reads_what_its_own_iteration_set(way):
    assert "CKPT105" not in codes(RIGHT[way])
