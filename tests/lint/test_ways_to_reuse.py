"""Modules that a forward pass checkpoints more than once, and that are units of FSDP2: in whichever way both is said."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

IMPORTS = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from functools import partial
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
    def forward(self, x):
        return self.b(self.a(x).relu())
"""
INIT = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.other = Block()
        self.layers = nn.ModuleList([Block() for _ in range(3)])
        self.head = nn.Linear(8, 8)
"""
LOOP = """
    def forward(self, x):
        for _ in range(3):
            x = checkpoint(self.block, x, use_reentrant=True)
        return self.head(x)
"""
ONCE = """
    def forward(self, x):
        return self.head(checkpoint(self.block, x, use_reentrant=True))
"""
SHARD = """
net = Net()
fully_shard(net.block)
fully_shard(net)
"""
LAYERS = """
net = Net()
for layer in net.layers:
    fully_shard(layer)
fully_shard(net)
"""
TRAIN = """
for x in loader:
    net(x.requires_grad_()).sum().backward()
"""
REUSED = {
    "the modules of a class": INIT
    + LOOP
    + """
net = Net()
for m in net.modules():
    if isinstance(m, Block):
        fully_shard(m)
fully_shard(net)
"""
    + TRAIN,
    "the modules of a type": INIT
    + LOOP
    + """
net = Net()
for name, m in net.named_modules():
    if type(m) is Block:
        fully_shard(m)
fully_shard(net)
"""
    + TRAIN,
    "the children": INIT
    + LOOP
    + """
net = Net()
for name, child in net.named_children():
    fully_shard(child)
fully_shard(net)
"""
    + TRAIN,
    "the modules, in a helper": INIT
    + LOOP
    + """
def shard(model, kind):
    for m in model.modules():
        if isinstance(m, kind):
            fully_shard(m)
    fully_shard(model)
    return model
net = shard(Net(), Block)
"""
    + TRAIN,
    "a method, twice": INIT
    + """
    def embed(self, x):
        return checkpoint(self.block, x, use_reentrant=True)
    def forward(self, a, b):
        return self.embed(a) - self.embed(b)
"""
    + SHARD,
    "a method in a loop": INIT
    + """
    def embed(self, x):
        return checkpoint(self.block, x, use_reentrant=True)
    def forward(self, a):
        for _ in range(4):
            a = self.embed(a)
        return self.head(a)
"""
    + SHARD
    + TRAIN,
    "a function, twice": """
def run(module, x):
    return checkpoint(module, x, use_reentrant=True)
"""
    + INIT
    + """
    def forward(self, a):
        a = run(self.block, a)
        return run(self.block, self.head(a))
"""
    + SHARD
    + TRAIN,
    "two methods": INIT
    + """
    def left(self, x):
        return checkpoint(self.block, x, use_reentrant=True)
    def right(self, x):
        return checkpoint(self.block, x + 1, use_reentrant=True)
    def forward(self, a):
        return self.left(a) + self.right(a)
"""
    + SHARD
    + TRAIN,
    "a comprehension": INIT
    + """
    def forward(self, xs):
        return sum(checkpoint(self.block, x, use_reentrant=True) for x in xs)
"""
    + SHARD
    + TRAIN,
}
ONCE_EACH = {
    "a training loop": INIT
    + """
    def step(self, x):
        return self.head(checkpoint(self.block, x, use_reentrant=True))
"""
    + SHARD
    + """
for x in loader:
    net.step(x.requires_grad_()).sum().backward()
""",
    "a method for each layer": INIT
    + """
    def run(self, block, x):
        return checkpoint(block, x, use_reentrant=True)
    def forward(self, x):
        for layer in self.layers:
            x = self.run(layer, x)
        return x
"""
    + LAYERS
    + TRAIN,
    "a method for each, by one name": INIT
    + """
    def run(self, block, x):
        return checkpoint(block, x, use_reentrant=True)
    def forward(self, x):
        for block in self.layers:
            x = self.run(block, x)
        return x
"""
    + LAYERS
    + TRAIN,
    "a method for each by number": INIT
    + """
    def run(self, i, x):
        return checkpoint(self.layers[i], x, use_reentrant=True)
    def forward(self, x):
        for j in range(3):
            x = self.run(j, x)
        return x
"""
    + LAYERS
    + TRAIN,
    "a method for two": INIT
    + """
    def run(self, block, x):
        return checkpoint(block, x, use_reentrant=True)
    def forward(self, x):
        return self.run(self.other, self.run(self.block, x))
"""
    + SHARD
    + TRAIN,
    "a method for two layers": INIT
    + """
    def run(self, block, x):
        return checkpoint(block, x, use_reentrant=True)
    def forward(self, x):
        return self.run(self.layers[0], self.run(self.layers[1], x))
"""
    + LAYERS
    + TRAIN,
    "in either case": INIT
    + """
    def embed(self, x):
        return checkpoint(self.block, x, use_reentrant=True)
    def forward(self, x, flag=False):
        if flag:
            return self.embed(x)
        return self.head(self.embed(x))
"""
    + SHARD
    + TRAIN,
    "in one of two branches": INIT
    + """
    def forward(self, x, flag=False):
        if flag:
            return checkpoint(self.block, x, use_reentrant=True)
        else:
            return self.head(checkpoint(self.block, x, use_reentrant=True))
"""
    + SHARD
    + TRAIN,
    "two steps": INIT
    + """
    def embed(self, x):
        return checkpoint(self.block, x, use_reentrant=True)
"""
    + SHARD
    + """
for a, b in loader:
    net.embed(a).sum().backward()
    net.embed(b).sum().backward()
""",
    "once without gradients": INIT
    + """
    def embed(self, x):
        return checkpoint(self.block, x, use_reentrant=True)
    def forward(self, a, b):
        with torch.no_grad():
            t = self.embed(b)
        return self.embed(a) - t
"""
    + SHARD
    + TRAIN,
    "the other variant": INIT
    + """
    def embed(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
    def forward(self, a, b):
        return self.embed(a) - self.embed(b)
"""
    + SHARD
    + TRAIN,
    "the modules of another class": INIT
    + LOOP
    + """
net = Net()
for m in net.modules():
    if isinstance(m, nn.LayerNorm):
        fully_shard(m)
fully_shard(net)
"""
    + TRAIN,
    "the other children": INIT
    + LOOP
    + """
net = Net()
for name, m in net.named_children():
    if name != "block":
        fully_shard(m)
fully_shard(net)
"""
    + TRAIN,
    "the modules of an open class": INIT
    + LOOP
    + """
net = Net()
for m in net.modules():
    if isinstance(m, kind):
        fully_shard(m)
fully_shard(net)
"""
    + TRAIN,
    "once each": INIT
    + """
    def forward(self, x):
        for m in (self.block, self.other):
            x = checkpoint(m, x, use_reentrant=True)
        return x
"""
    + SHARD
    + TRAIN,
    "in either order": INIT
    + """
    def forward(self, x, swap=False):
        for m in (self.block, self.other) if swap else (self.other, self.block):
            x = checkpoint(m, x, use_reentrant=True)
        return x
"""
    + SHARD
    + TRAIN,
    "two functions that nobody joins": INIT
    + """
    def query(self, x):
        return checkpoint(self.block, x, use_reentrant=True)
    def document(self, x):
        return checkpoint(self.block, x, use_reentrant=True)
"""
    + SHARD,
    "epochs": INIT
    + ONCE
    + SHARD
    + """
def epoch(model, loader):
    for x in loader:
        model(x).sum().backward()
for _ in range(3):
    epoch(net, loader)
""",
    "a list of one": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.other = Block()
        self.layers = nn.ModuleList([self.block])
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        for m in self.layers:
            x = checkpoint(m, x, use_reentrant=True)
        return x
"""
    + SHARD
    + TRAIN,
    "epochs in a method": INIT
    + """
    def loss(self, x):
        return checkpoint(self.block, x, use_reentrant=True).sum()
    def fit(self, loader):
        for _ in range(3):
            for x in loader:
                self.loss(x).backward()
"""
    + SHARD
    + """
net.fit(loader)
""",
}


def codes(program: str) -> set[str]:
    return {found.code for found in check_source(IMPORTS + program)} & {"CKPT127"}


@pytest.mark.parametrize("program", REUSED.values(), ids=REUSED)
def test_several_segments_run_the_unit(program):
    assert codes(program) == {"CKPT127"}


@pytest.mark.parametrize("program", ONCE_EACH.values(), ids=ONCE_EACH)
def test_one_segment_runs_it(program):
    assert codes(program) == set()


LISTED = """\
import copy
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint
class Block(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.a, self.b = nn.Linear(d, d), nn.Linear(d, d)
    def forward(self, x):
        return self.b(self.a(x).relu())
def make(d):
    return Block(d)
class Universal(nn.Module):
    def __init__(self, d=8, n=4):
        super().__init__()
        block = make(d)
        self.layers = LAYERS
    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)
        return x
model = Universal()
for layer in model.layers:
    fully_shard(layer)
fully_shard(model)
"""
OF_ONE = (
    "nn.ModuleList([block] * n)",
    "nn.ModuleList(block for _ in range(n))",
    "nn.ModuleList([block, block, block])",
    "n * [block]",
    "nn.ModuleList([make(d)] * 3)",
)
OF_SEVERAL = (
    "nn.ModuleList([make(d), make(d)])",
    "nn.ModuleList(make(d) for _ in range(n))",
    "nn.ModuleList([copy.deepcopy(block) for _ in range(n)])",
    "nn.ModuleList([block] * 1)",
    "nn.ModuleList([Block(d), Block(d)])",
    "nn.ModuleList(map(make, [d] * n))",
    "nn.ModuleList([block] + [make(d) for _ in range(3)])",
    "nn.ModuleList([copy.deepcopy(block), copy.deepcopy(block)])",
)


@pytest.mark.parametrize("layers", OF_ONE)
def test_a_list_of_one_block(layers):
    assert "CKPT127" in codes(LISTED.replace("LAYERS", layers))
    assert "CKPT127" not in codes(LISTED.replace("LAYERS", layers).replace("use_reentrant=True", "use_reentrant=False"))


@pytest.mark.parametrize("layers", OF_SEVERAL)
def test_a_list_of_several_blocks(layers):
    assert "CKPT127" not in codes(LISTED.replace("LAYERS", layers))
