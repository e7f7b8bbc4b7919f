"""How one layer in k is picked, k being a square root: whichever way, it is noted; segments of k layers are left alone."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import math
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

class Part(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.a, self.b = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
    def forward(self, x):
        return self.b(torch.relu(self.a(x)))

class Block(nn.Module):
    def __init__(self, recompute=False, index=0, every=1):
        super().__init__()
        self.recompute, self.part = recompute, Part()
    def forward(self, x):
        if self.recompute and self.training:
            return checkpoint(self.part, x, use_reentrant=False)
        return self.part(x)

"""
WAYS = {
    "comprehension": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        every = math.ceil(math.sqrt(n))
        self.blocks = nn.ModuleList([Block(recompute=(i % every == 0)) for i in range(n)])
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
net = Net()
""",
    "positional": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        every = math.isqrt(n)
        self.blocks = nn.ModuleList(Block(i % every == 0) for i in range(n))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
net = Net()
""",
    "not": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        every = math.isqrt(n)
        self.blocks = nn.ModuleList(Block(not i % every) for i in range(n))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
net = Net()
""",
    "append": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        every = round(n ** 0.5)
        self.blocks = nn.ModuleList()
        for i in range(n):
            self.blocks.append(Block(recompute=i % every == 0))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
net = Net()
""",
    "set outside": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        every = round(n ** 0.5)
        self.blocks = nn.ModuleList(Block() for _ in range(n))
        for i, block in enumerate(self.blocks):
            block.recompute = i % every == 0
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
net = Net()
""",
    "variable": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        every = round(n ** 0.5)
        self.blocks = nn.ModuleList()
        for i in range(n):
            chosen = i % every == 0
            self.blocks.append(Block(recompute=chosen))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
net = Net()
""",
    "annotated": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        every: int = math.isqrt(n)
        self.blocks = nn.ModuleList(Block(i % every == 0) for i in range(n))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
net = Net()
""",
    "two steps": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        root = math.sqrt(n)
        every = max(1, int(root))
        self.blocks = nn.ModuleList(Block(i % every == 0) for i in range(n))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
net = Net()
""",
    "helper": """\
def interval(n):
    return max(1, int(math.sqrt(n)))

class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        every = interval(n)
        self.blocks = nn.ModuleList(Block(i % every == 0) for i in range(n))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
net = Net()
""",
    "wrapper": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        every = math.isqrt(n)
        self.blocks = nn.ModuleList(Part() for _ in range(n))
        for i, block in enumerate(self.blocks):
            if i % every == 0:
                self.blocks[i] = checkpoint_wrapper(block)
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
net = Net()
""",
    "wrapper in range": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        every = math.isqrt(n)
        self.blocks = nn.ModuleList(Part() for _ in range(n))
        for i in range(0, n, every):
            self.blocks[i] = checkpoint_wrapper(self.blocks[i])
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
net = Net()
""",
    "wrapper expression": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        every = math.isqrt(n)
        blocks = [Part() for _ in range(n)]
        self.blocks = nn.ModuleList([checkpoint_wrapper(block) if i % every == 0 else block for i, block in enumerate(blocks)])
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
net = Net()
""",
    "membership": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        self.blocks = nn.ModuleList(Part() for _ in range(n))
        self.every = int(math.sqrt(n))
    def forward(self, x):
        chosen = set(range(0, len(self.blocks), self.every))
        for i, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if i in chosen else block(x)
        return x
""",
    "range": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        self.blocks = nn.ModuleList(Part() for _ in range(n))
        self.every = int(math.sqrt(n))
    def forward(self, x):
        for i, block in enumerate(self.blocks):
            if i in range(0, len(self.blocks), self.every):
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return x
""",
    "own index": """\
class Own(Block):
    def __init__(self, index, every):
        super().__init__()
        self.recompute = index % every == 0

class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        every = math.isqrt(n)
        self.blocks = nn.ModuleList(Own(i, every) for i in range(n))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
net = Net()
""",
    "last of k": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        self.blocks = nn.ModuleList(Part() for _ in range(n))
        self.every = int(math.sqrt(n))
    def forward(self, x):
        for i, block in enumerate(self.blocks):
            if i % self.every == self.every - 1:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return x
""",
    "helper keyword": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        self.blocks = nn.ModuleList(Part() for _ in range(n))
        self.every = int(math.sqrt(n))
    def forward(self, x):
        for i, block in enumerate(self.blocks):
            x = self.run(block, x, i % self.every == 0)
        return x
    def run(self, block, x, recompute):
        if recompute:
            return checkpoint(block, x, use_reentrant=False)
        return block(x)
""",
    "runner": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        self.blocks = nn.ModuleList(Part() for _ in range(n))
        self.every = int(math.sqrt(n))
    def forward(self, x):
        run = (lambda f, x: checkpoint(f, x, use_reentrant=False))
        for i, block in enumerate(self.blocks):
            x = run(block, x) if i % self.every == 0 else block(x)
        return x
""",
    "given": """\
class Net(nn.Module):
    def __init__(self, n=36, every=1):
        super().__init__()
        self.every = every
        self.blocks = nn.ModuleList(Part() for _ in range(n))
    def forward(self, x):
        for i, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if i % self.every == 0 else block(x)
        return x
net = Net(36, every=math.isqrt(36))
""",
}
#: Segments, all layers, all but one in k, and what is not certain.
RIGHT = {
    "given two": """\
class Net(nn.Module):
    def __init__(self, n=36, every=1):
        super().__init__()
        self.every = every
        self.blocks = nn.ModuleList(Part() for _ in range(n))
    def forward(self, x):
        for i, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if i % self.every == 0 else block(x)
        return x
net = Net(36, every=math.isqrt(36))
other = Net(36, 1)
""",
    "helper of segments": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        self.blocks = nn.ModuleList(Part() for _ in range(n))
        self.every = int(math.sqrt(n))
    def forward(self, x):
        for i in range(36):
            if i % self.every == 0:
                x = self.run(i, x)
        return x
    def run(self, i, x):
        return checkpoint(self.segment, i, x, use_reentrant=False)
    def segment(self, start, x):
        for block in self.blocks[start : start + self.every]:
            x = block(x)
        return x
""",
    "every block": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        self.blocks = nn.ModuleList(Block(recompute=True) for i in range(math.isqrt(n)))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
net = Net()
""",
    "every other": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        every, scale = 2, math.sqrt(n)
        self.blocks = nn.ModuleList(Block(i % every == 0) for i in range(n))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
net = Net()
""",
    "all but": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        every = math.isqrt(n)
        self.blocks = nn.ModuleList(Block(i % every != 0) for i in range(n))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
net = Net()
""",
    "segments": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        self.blocks = nn.ModuleList(Part() for _ in range(n))
        self.every = int(math.sqrt(n))
    def forward(self, x):
        for i in range(0, len(self.blocks), self.every):
            segment = nn.Sequential(*self.blocks[i : i + self.every])
            x = checkpoint(segment, x, use_reentrant=False)
        return x
""",
    "segment function": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        self.blocks = nn.ModuleList(Part() for _ in range(n))
        self.every = int(math.sqrt(n))
    def forward(self, x):
        for i in range(0, len(self.blocks), self.every):
            x = checkpoint(self.segment, i, x, use_reentrant=False)
        return x
    def segment(self, start, x):
        for block in self.blocks[start : start + self.every]:
            x = block(x)
        return x
""",
    "segment partial": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        self.blocks = nn.ModuleList(Part() for _ in range(n))
        self.every = int(math.sqrt(n))
    def forward(self, x):
        for i in range(0, len(self.blocks), self.every):
            x = checkpoint(lambda y, i=i: self.segment(i, y), x, use_reentrant=False)
        return x
    def segment(self, start, x):
        for block in self.blocks[start : start + self.every]:
            x = block(x)
        return x
""",
    "modules of segments": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        every = math.isqrt(n)
        self.blocks = nn.ModuleList(checkpoint_wrapper(nn.Sequential(*[Part() for _ in range(every)])) for _ in range(0, n, every))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
net = Net()
""",
    "two ways": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        every = math.isqrt(n)
        self.blocks = nn.ModuleList(Block(i % every == 0) for i in range(n))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
net = Net()

for block in net.blocks:
    block.recompute = True
""",
    "one of two": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        every = math.isqrt(n)
        self.blocks = nn.ModuleList(Block(i % every == 0) for i in range(n))
        self.tail = Block(True)
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
net = Net()
""",
    "step of data": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        self.blocks = nn.ModuleList(Part() for _ in range(n))
        self.every = int(math.sqrt(n))
    def forward(self, x):
        for i in range(0, x.size(1), self.every):
            y = checkpoint(self.blocks[0], x[:, i], use_reentrant=False)
        return y
        return x
""",
    "exclusion": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        self.blocks = nn.ModuleList(Part() for _ in range(n))
        self.every = int(math.sqrt(n))
    def forward(self, x):
        skipped = set(range(0, len(self.blocks), self.every))
        for i, block in enumerate(self.blocks):
            x = block(x) if i in skipped else checkpoint(block, x, use_reentrant=False)
        return x
""",
    "chunks": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        self.blocks = nn.ModuleList(Part() for _ in range(n))
        self.every = int(math.sqrt(n))
    def forward(self, x):
        for segment in torch.arange(36).chunk(self.every):
            x = checkpoint(self.blocks[0], x, use_reentrant=False)
        return x
""",
    "list of segments": """\
class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        self.blocks = nn.ModuleList(Part() for _ in range(n))
        self.every = int(math.sqrt(n))
    def forward(self, x):
        segments = [nn.Sequential(*self.blocks[i : i + self.every]) for i in range(0, 36, self.every)]
        for segment in segments:
            x = checkpoint(segment, x, use_reentrant=False)
        return x
""",
}


NET = """\
import functools

class Net(nn.Module):
    def __init__(self, n=36):
        super().__init__()
        self.blocks = nn.ModuleList(Part() for _ in range(n))
        every = int(math.sqrt(n))
        self.every = every
        self.flags = [i % every == 0 for i in range(n)]
    def forward(self, x, mask=None):
        {0}
        return x
"""
CHOSEN = "x = checkpoint({0}, x, use_reentrant=False) if {1} else {0}(x)"
#: What stands for the layer, what stands for the condition, and the loop.
LOOPS = {
    "zip": ("for block, flag in zip(self.blocks, self.flags):", "", "block", "flag"),
    "numbered zip": ("for i, (block, flag) in enumerate(zip(self.blocks, self.flags)):", "", "block", "flag"),
    "list": ("for i, block in enumerate(self.blocks):", "", "block", "self.flags[i]"),
    "local list": (
        "for b, flag in zip(self.blocks, tuple(i % self.every == 0 for i in range(36))):",
        "",
        "b",
        "flag",
    ),
    "forward": ("for i, block in enumerate(self.blocks):", "fn = block.forward", "fn", "i % self.every == 0"),
    "by index": ("for i in range(36):", "block = self.blocks[i]", "block", "i % self.every == 0"),
    "lambda": ("for i, b in enumerate(self.blocks):", "run = lambda h: b(h)", "run", "i % self.every == 0"),
    "partial": ("for i, b in enumerate(self.blocks):", "run = functools.partial(b)", "run", "i % self.every == 0"),
    "set": ("for i, b in enumerate(self.blocks):", "", "b", "i in {j for j in range(36) if j % self.every == 0}"),
}


def looped(way: str, condition: str = "{0}") -> str:
    loop, first, layer, chosen = LOOPS[way]
    body = [first, CHOSEN.replace("{0}", layer).replace("{1}", condition.replace("{0}", chosen))]
    return NET.replace("{0}", "\n            ".join([loop, *filter(None, body)]))


def codes(program: str) -> set[str]:
    found = check_source(SCRIPT + program, select=lambda code: code == "CKPT408")
    return {it.code for it in found}


@pytest.mark.parametrize("way", WAYS)
def test_one_layer_in_k(way):
    assert codes(WAYS[way]) == {"CKPT408"}


@pytest.mark.parametrize("way", RIGHT)
def test_other_layers_too(way):
    assert not codes(RIGHT[way])


@pytest.mark.parametrize("way", LOOPS)
def test_one_layer_in_k_in_loops(way):
    assert codes(looped(way)) == {"CKPT408"}
    assert codes(looped(way, "self.training and {0}")) == {"CKPT408"}


@pytest.mark.parametrize("way", LOOPS)
def test_other_layers_in_loops(way):
    assert not codes(looped(way).replace("== 0", "!= 0"))
    assert not codes(looped(way).replace("int(math.sqrt(n))", "2"))
    assert not codes(looped(way, "mask is not None or {0}"))
