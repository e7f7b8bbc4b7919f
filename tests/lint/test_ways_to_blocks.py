"""How modules come to the blocks that they checkpoint: whichever way they take, what is in the blocks is seen."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import copy
import functools
import itertools
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, padding=1)
        self.bn = nn.BatchNorm2d(c)

    def forward(self, x):
        return x + F.relu(self.bn(self.conv(x)))

class Net(nn.Module):
    def __init__(self, c=16, n=4):
        super().__init__()
        self.stem = nn.Conv2d(3, c, 3)
        {0}
        self.head = nn.Linear(c, 10)

    def forward(self, x):
        x = self.stem(x)
        {1}
        return self.head(x.mean((2, 3)))

def clones(module, n):
    return nn.ModuleList([copy.deepcopy(module) for _ in range(n)])

def main(loader):
    net = Net().train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
"""
LIST = "self.layers = nn.ModuleList([Block(c) for _ in range(n)])"


def checkpointed(block: str) -> str:
    return f"x = checkpoint({block}, x, use_reentrant=False)"


#: How the constructor makes them, and what the forward pass does.
WAYS = {
    "for": (LIST, "for layer in self.layers:\n            " + checkpointed("layer")),
    "enumerate": (LIST, "for i, layer in enumerate(self.layers):\n            " + checkpointed("layer")),
    "range": (LIST, "for i in range(len(self.layers)):\n            " + checkpointed("self.layers[i]")),
    "while": (
        LIST,
        "i = 0\n        while i < len(self.layers):\n            "
        + checkpointed("self.layers[i]")
        + "\n            i += 1",
    ),
    "zip": (LIST, "for layer, k in zip(self.layers, range(4)):\n            " + checkpointed("layer")),
    "named_children": (LIST, "for _, layer in self.layers.named_children():\n            " + checkpointed("layer")),
    "children": (LIST, "for layer in self.layers.children():\n            " + checkpointed("layer")),
    "_modules": (LIST, "for layer in self.layers._modules.values():\n            " + checkpointed("layer")),
    "iter next": (
        LIST,
        "it = iter(self.layers)\n        " + checkpointed("next(it)") + "\n        " + checkpointed("next(it)"),
    ),
    "unpack": (LIST, "a, b, *rest = self.layers\n        " + checkpointed("a") + "\n        " + checkpointed("b")),
    "slice": (LIST, "for layer in self.layers[1:]:\n            " + checkpointed("layer")),
    "reversed": (LIST, "for layer in reversed(self.layers):\n            " + checkpointed("layer")),
    "lambda": (
        LIST,
        "for layer in self.layers:\n            x = checkpoint(lambda h, layer=layer: layer(h), x, use_reentrant=False)",
    ),
    "partial": (
        LIST,
        "for layer in self.layers:\n            x = checkpoint(functools.partial(layer), x, use_reentrant=False)",
    ),
    "forward": (LIST, "for layer in self.layers:\n            " + checkpointed("layer.forward")),
    "__call__": (LIST, "for layer in self.layers:\n            " + checkpointed("layer.__call__")),
    "chunk fn": (
        LIST,
        "def run(a, b):\n            def f(h):\n                for layer in self.layers[a:b]:\n                    h = layer(h)\n                return h\n            return f\n        for a in range(0, len(self.layers), 2):\n            "
        + checkpointed("run(a, a + 2)"),
    ),
    "sequential slice": (
        "self.layers = nn.Sequential(*[Block(c) for _ in range(n)])",
        "x = torch.utils.checkpoint.checkpoint_sequential(self.layers, 2, x, use_reentrant=False)",
    ),
    "sequential whole": ("self.layers = nn.Sequential(*[Block(c) for _ in range(n)])", checkpointed("self.layers")),
    "sequential idx": (
        "self.layers = nn.Sequential(Block(c), Block(c))",
        checkpointed("self.layers[0]") + "\n        " + checkpointed("self.layers[1]"),
    ),
    "sequential of slices": (
        "self.layers = nn.Sequential(*[Block(c) for _ in range(n)])",
        "for part in (self.layers[:2], self.layers[2:]):\n            " + checkpointed("part"),
    ),
    "moduledict": (
        "self.layers = nn.ModuleDict({f'l{i}': Block(c) for i in range(n)})",
        "for layer in self.layers.values():\n            " + checkpointed("layer"),
    ),
    "moduledict items": (
        "self.layers = nn.ModuleDict({f'l{i}': Block(c) for i in range(n)})",
        "for k, layer in self.layers.items():\n            " + checkpointed("layer"),
    ),
    "moduledict key": (
        "self.layers = nn.ModuleDict({'a': Block(c), 'b': Block(c)})",
        "for k in ('a', 'b'):\n            " + checkpointed("self.layers[k]"),
    ),
    "moduledict keys": (
        "self.layers = nn.ModuleDict({'a': Block(c), 'b': Block(c)})",
        "for k in self.layers:\n            " + checkpointed("self.layers[k]"),
    ),
    "moduledict set": (
        "self.layers = nn.ModuleDict()\n        for i in range(n):\n            self.layers[f'b{i}'] = Block(c)",
        "for k in self.layers.keys():\n            " + checkpointed("self.layers[k]"),
    ),
    "moduledict update": (
        "self.layers = nn.ModuleDict()\n        self.layers.update({'a': Block(c)})",
        checkpointed("self.layers['a']"),
    ),
    "getattr f": (
        "for i in range(n):\n            setattr(self, f'layer{i}', Block(c))",
        "for i in range(4):\n            " + checkpointed("getattr(self, f'layer{i}')"),
    ),
    "getattr +": (
        "self.layer1 = Block(c)\n        self.layer2 = Block(c)",
        "for i in range(1, 3):\n            " + checkpointed("getattr(self, 'layer' + str(i))"),
    ),
    "getattr %": (
        "self.layer1 = Block(c)\n        self.layer2 = Block(c)",
        "for i in (1, 2):\n            " + checkpointed("getattr(self, 'layer%d' % i)"),
    ),
    "getattr names": (
        "self.down = Block(c)\n        self.up = Block(c)",
        "for n in ['down', 'up']:\n            " + checkpointed("getattr(self, n)"),
    ),
    "names attr": (
        "self.names = []\n        for i in range(n):\n            self.add_module(f'b{i}', Block(c))\n            self.names.append(f'b{i}')",
        "for name in self.names:\n            " + checkpointed("getattr(self, name)"),
    ),
    "_modules name": (
        "for i in range(n):\n            self.add_module('b%d' % i, Block(c))",
        "for i in range(4):\n            " + checkpointed("self._modules['b%d' % i]"),
    ),
    "extend": (
        "self.layers = nn.ModuleList()\n        self.layers.extend([Block(c) for _ in range(n)])",
        "for layer in self.layers:\n            " + checkpointed("layer"),
    ),
    "extend gen": (
        "self.layers = nn.ModuleList()\n        self.layers.extend(Block(c) for _ in range(n))",
        "for layer in self.layers:\n            " + checkpointed("layer"),
    ),
    "insert": (
        "self.layers = nn.ModuleList()\n        self.layers.insert(0, Block(c))",
        "for layer in self.layers:\n            " + checkpointed("layer"),
    ),
    "+=": (
        "self.layers = nn.ModuleList()\n        for _ in range(n):\n            self.layers += [Block(c)]",
        "for layer in self.layers:\n            " + checkpointed("layer"),
    ),
    "list add": (
        "blocks = []\n        for _ in range(n):\n            blocks = blocks + [Block(c)]\n        self.layers = nn.ModuleList(blocks)",
        "for layer in self.layers:\n            " + checkpointed("layer"),
    ),
    "mul": (
        "self.layers = nn.ModuleList([Block(c)] * n)",
        "for layer in self.layers:\n            " + checkpointed("layer"),
    ),
    "deepcopy": (
        "proto = Block(c)\n        self.layers = nn.ModuleList([copy.deepcopy(proto) for _ in range(n)])",
        "for layer in self.layers:\n            " + checkpointed("layer"),
    ),
    "deepcopy fn": (
        "self.layers = clones(Block(c), n)",
        "for layer in self.layers:\n            " + checkpointed("layer"),
    ),
    "map": (
        "self.layers = nn.ModuleList(map(Block, [c] * n))",
        "for layer in self.layers:\n            " + checkpointed("layer"),
    ),
    "gen": (
        "self.layers = nn.ModuleList(Block(c) for _ in range(n))",
        "for layer in self.layers:\n            " + checkpointed("layer"),
    ),
    "nested": (
        "self.stages = nn.ModuleList([nn.ModuleList([Block(c) for _ in range(2)]) for _ in range(2)])",
        "for stage in self.stages:\n            for layer in stage:\n                " + checkpointed("layer"),
    ),
    "nested seq": (
        "self.stages = nn.ModuleList([nn.Sequential(*[Block(c) for _ in range(2)]) for _ in range(2)])",
        "for stage in self.stages:\n            " + checkpointed("stage"),
    ),
    "starred": (
        "self.layers = nn.ModuleList([Block(c), *[Block(c) for _ in range(n)]])",
        "for layer in self.layers:\n            " + checkpointed("layer"),
    ),
    "ordereddict": (
        "from collections import OrderedDict\n        self.layers = nn.Sequential(OrderedDict([(f'b{i}', Block(c)) for i in range(n)]))",
        "for layer in self.layers:\n            " + checkpointed("layer"),
    ),
    "method": (
        LIST,
        "x = self.run(x)\n        return x\n\n    def run(self, x):\n        for layer in self.layers:\n            "
        + checkpointed("layer")
        + "\n        return x\n\n    def other(self, x):",
    ),
    "tuple attr": (
        "self.a = Block(c)\n        self.b = Block(c)\n        self.order = (self.a, self.b)",
        "for layer in self.order:\n            " + checkpointed("layer"),
    ),
    "list literal": (
        "self.a = Block(c)\n        self.b = Block(c)",
        "for layer in [self.a, self.b]:\n            " + checkpointed("layer"),
    ),
    "if chain": (
        LIST,
        "for i, layer in enumerate(self.layers):\n            if i % 2 == 0:\n                "
        + checkpointed("layer")
        + "\n            else:\n                x = layer(x)",
    ),
    "local fn": (
        LIST,
        "def step(layer, h):\n            return layer(h)\n        for layer in self.layers:\n            x = checkpoint(step, layer, x, use_reentrant=False)",
    ),
    "self fn": (
        LIST,
        "for layer in self.layers:\n            "
        + checkpointed("self.wrap(layer)")
        + "\n        return self.head(x.mean((2, 3)))\n\n    def wrap(self, layer):\n        def f(*args):\n            return layer(*args)\n        return f\n\n    def unused(self, x):",
    ),
    "walrus": (LIST, "for layer in self.layers:\n            x = (y := checkpoint(layer, x, use_reentrant=False)) + 0"),
    "comp": (
        LIST,
        "outs = [checkpoint(layer, x, use_reentrant=False) for layer in self.layers]\n        x = sum(outs)",
    ),
    "dict comp": (
        LIST,
        "outs = {i: checkpoint(l, x, use_reentrant=False) for i, l in enumerate(self.layers)}\n        x = outs[0] + outs[1]",
    ),
    "stack": (LIST, "x = torch.stack([checkpoint(l, x, use_reentrant=False) for l in self.layers]).mean(0)"),
    "property": (
        LIST,
        "for layer in self.blocks:\n            "
        + checkpointed("layer")
        + "\n        return self.head(x.mean((2, 3)))\n\n    @property\n    def blocks(self):\n        return self.layers\n\n    def unused(self, x):",
    ),
    "method list": (
        LIST,
        "for layer in self.get_layers():\n            "
        + checkpointed("layer")
        + "\n        return self.head(x.mean((2, 3)))\n\n    def get_layers(self):\n        return list(self.layers)\n\n    def unused(self, x):",
    ),
    "yield": (
        LIST,
        "for layer in self.walk():\n            "
        + checkpointed("layer")
        + "\n        return self.head(x.mean((2, 3)))\n\n    def walk(self):\n        for layer in self.layers:\n            yield layer\n\n    def unused(self, x):",
    ),
    "yield from": (
        LIST,
        "for layer in self.walk():\n            "
        + checkpointed("layer")
        + "\n        return self.head(x.mean((2, 3)))\n\n    def walk(self):\n        yield from self.layers\n\n    def unused(self, x):",
    ),
    "cond expr": (
        LIST,
        "for layer in self.layers:\n            x = checkpoint(layer, x, use_reentrant=False) if self.training else layer(x)",
    ),
    "ckpt var": (
        LIST,
        "run = functools.partial(checkpoint, use_reentrant=False)\n        for layer in self.layers:\n            x = run(layer, x)",
    ),
    "ckpt lambda": (
        LIST,
        "run = lambda f, h: checkpoint(f, h, use_reentrant=False)\n        for layer in self.layers:\n            x = run(layer, x)",
    ),
    "ckpt choose": (
        LIST,
        "for layer in self.layers:\n            run = functools.partial(checkpoint, layer, use_reentrant=False) if self.training else layer\n            x = run(x)",
    ),
    "islice": (LIST, "for layer in itertools.islice(self.layers, 2):\n            " + checkpointed("layer")),
    "chain": (
        LIST + "\n        self.more = nn.ModuleList([Block(c)])",
        "for layer in itertools.chain(self.layers, self.more):\n            " + checkpointed("layer"),
    ),
    "list add loop": (
        LIST + "\n        self.more = nn.ModuleList([Block(c)])",
        "for layer in list(self.layers) + list(self.more):\n            " + checkpointed("layer"),
    ),
    "star loop": (
        LIST + "\n        self.more = nn.ModuleList([Block(c)])",
        "for layer in [*self.layers, *self.more]:\n            " + checkpointed("layer"),
    ),
    "mod": (
        LIST,
        "n = len(self.layers)\n        for i in range(n * 2):\n            " + checkpointed("self.layers[i % n]"),
    ),
    "get_submodule": (LIST, checkpointed("self.get_submodule('layers.0')")),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_norm_in_a_block_is_seen(way):
    made, run = WAYS[way]
    found = check_source(SCRIPT.replace("{0}", made).replace("{1}", run))
    assert "CKPT106" in {finding.code for finding in found}
