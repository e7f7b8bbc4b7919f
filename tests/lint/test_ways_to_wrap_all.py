"""Modules that are wrapped at every level by hand: by a function that calls itself, by loops, by `apply`."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
import torch.nn as nn
from functools import partial
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing, checkpoint_wrapper, CheckpointImpl
class Mlp(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
    def forward(self, x):
        return self.down(self.up(x).relu())
class Block(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.norm, self.mlp, self.out = nn.LayerNorm(d), Mlp(d), nn.Linear(d, d)
    def forward(self, x):
        return self.out(x + self.mlp(self.norm(x)))
class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.stem = nn.Linear(d, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(4))
    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = b(x)
        return x
reentrant = partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT)
net = Net()
"""
ALL = {
    "recursion": """
def wrap_all(module):
    for name, child in module.named_children():
        wrap_all(child)
        setattr(module, name, checkpoint_wrapper(child))
wrap_all(net)
""",
    "what has children": """
def wrap_all(module):
    for name, child in list(module.named_children()):
        if len(list(child.children())) > 0:
            wrap_all(child)
        module._modules[name] = checkpoint_wrapper(child, checkpoint_impl=CheckpointImpl.NO_REENTRANT)
wrap_all(net)
""",
    "what is given back": """
def wrap_all(module):
    for name, child in module.named_children():
        setattr(module, name, wrap_all(child))
    return checkpoint_wrapper(module)
net = wrap_all(net)
""",
    "two loops": """
for module in list(net.modules()):
    for name, child in list(module.named_children()):
        setattr(module, name, checkpoint_wrapper(child))
""",
    "applied": """
def wrap_children(m):
    for n, c in m.named_children():
        setattr(m, n, checkpoint_wrapper(c))
net.apply(wrap_children)
""",
    "a method": """
class Trainer:
    def __init__(self, model):
        self.model = model
        self._wrap(model)
    def _wrap(self, module):
        for name, child in module.named_children():
            self._wrap(child)
            wrapped = reentrant(child)
            module.add_module(name, wrapped)
Trainer(net)
""",
    "around what it gives": """
def wrap_all(module, depth=0):
    for name, child in module.named_children():
        setattr(module, name, checkpoint_wrapper(wrap_all(child, depth + 1)))
    return module
def main(net):
    wrap_all(net)
""",
    "every module there is": """
def wrap_all(module):
    for name, child in module._modules.items():
        if isinstance(child, nn.Module):
            wrap_all(child)
            setattr(module, name, checkpoint_wrapper(child))
""",
    "upwards": """
for name, module in reversed(list(net.named_modules())):
    if name == "":
        continue
    parent, _, last = name.rpartition(".")
    setattr(net.get_submodule(parent), last, checkpoint_wrapper(module))
""",
}
SOME = {
    "blocks": """
def wrap_all(module):
    for name, child in module.named_children():
        if isinstance(child, Block):
            setattr(module, name, checkpoint_wrapper(child))
        else:
            wrap_all(child)
wrap_all(net)
""",
    "leaves": """
def wrap_all(module):
    for name, child in module.named_children():
        if len(list(child.children())) > 0:
            wrap_all(child)
        else:
            setattr(module, name, checkpoint_wrapper(child))
wrap_all(net)
""",
    "blocks, all asked": """
def wrap_all(module):
    for name, child in module.named_children():
        wrap_all(child)
        if isinstance(child, Block):
            setattr(module, name, checkpoint_wrapper(child))
wrap_all(net)
""",
    "children": """
for name, child in net.blocks.named_children():
    setattr(net.blocks, name, checkpoint_wrapper(child))
def wrap(module):
    for name, child in module.named_children():
        setattr(module, name, checkpoint_wrapper(child))
wrap(net.blocks)
""",
    "one level of depth": """
def wrap_all(module, depth=0):
    for name, child in module.named_children():
        if depth == 1:
            setattr(module, name, checkpoint_wrapper(child))
        else:
            wrap_all(child, depth + 1)
wrap_all(net)
""",
    "one level of names": """
for name, module in list(net.named_modules()):
    if name.count(".") != 1:
        continue
    parent, _, last = name.rpartition(".")
    setattr(net.get_submodule(parent), last, checkpoint_wrapper(module))
""",
    "a flat module": """
flat = nn.Module()
flat.a = nn.Linear(8, 8)
seq = Mlp()
def wrap_all(module):
    for name, child in module.named_children():
        wrap_all(child)
        setattr(module, name, checkpoint_wrapper(child))
wrap_all(seq)
""",
    "some kinds": """
def wrap_all(module, kinds):
    for name, child in module.named_children():
        wrap_all(child, kinds)
        if type(child) not in kinds:
            continue
        setattr(module, name, checkpoint_wrapper(child))
wrap_all(net, (Block,))
""",
    "blocks by themselves": """
def wrap_all(module):
    for name, child in module.named_children():
        if child in list(net.blocks):
            setattr(module, name, checkpoint_wrapper(child))
            continue
        wrap_all(child)
wrap_all(net)
def w2(module):
    if not isinstance(module, Block):
        return module
    for name, child in module.named_children():
        setattr(module, name, w2(child))
    return checkpoint_wrapper(module)
w2(net)
""",
    "not inside of blocks": """
def wrap_all(module):
    for name, child in module.named_children():
        setattr(module, name, checkpoint_wrapper(child))
        if isinstance(child, Block):
            continue
        wrap_all(child)
wrap_all(net)
""",
    "into wrappers": """
for name, module in list(net.named_modules()):
    if not name:
        continue
    parent, _, last = name.rpartition(".")
    setattr(net.get_submodule(parent), last, checkpoint_wrapper(module))
""",
}


def codes(script: str) -> set[str]:
    return {found.code for found in check_source(SCRIPT + script)}


@pytest.mark.parametrize("script", ALL.values(), ids=ALL)
def test_every_module_is_wrapped(script):
    assert "CKPT404" in codes(script)


@pytest.mark.parametrize("script", SOME.values(), ids=SOME)
def test_some_are_wrapped(script):
    assert "CKPT404" not in codes(script)
