"""A call of a checkpointed block that does not fit it raises, unless something may change what is run or what it gets."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """\
import contextlib
import types
from functools import partial

import pytest
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

"""
BLOCK = """\
class Block(nn.Module):
    def forward(self, x, mask):
        return x * mask

block = Block()
"""
#: A block that needs `mask`, called without it.
SHORT = """
def forward(x):
    return checkpoint(block, x, use_reentrant=False)
"""
RAISING = {
    "a block of the module": BLOCK + SHORT,
    "a block in a class": BLOCK
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x
""",
    "under autocast": BLOCK
    + """
def forward(x):
    with torch.autocast("cuda"):
        return checkpoint(block, x, use_reentrant=False)
""",
    "a function": """
def run(x, mask):
    return x * mask

def forward(x):
    return checkpoint(run, x, use_reentrant=False)
""",
    "a lambda": """
def forward(x):
    return checkpoint(lambda x, mask: x * mask, x, use_reentrant=False)
""",
    "a nested function": """
def forward(x):
    def run(x):
        return x.tanh()

    return checkpoint(run, x, x, use_reentrant=False)
""",
    "a method of an object": BLOCK.replace("forward(self", "run(self")
    + """
def forward(x):
    return checkpoint(block.run, x, use_reentrant=False)
""",
    "a method of its own under a switch": """
class Block(nn.Module):
    def forward(self, x, context):
        if self.use_checkpoint and self.training:
            return checkpoint(self.inner, (x, context), self.parameters(), True, use_reentrant=False)
        return x

    def inner(self, x, context):
        return x * context
""",
    "a method of its own in the reentrant variant": """
class Block(nn.Module):
    def forward(self, x, mask):
        return checkpoint(self.inner, x, use_reentrant=True)

    def inner(self, x, mask):
        return x * mask
""",
    "a function in the reentrant variant": """
def run(x, mask):
    return x * mask

def forward(x):
    return checkpoint(run, x.requires_grad_(), use_reentrant=True)
""",
    "a layer of torch without its input": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.conv = checkpoint(self.conv, use_reentrant=False)
""",
    "a parameter by position only": """
def run(x, /):
    return x

def forward(x):
    return checkpoint(run, x=x, use_reentrant=False)
""",
}
RIGHT = {
    "a layer of torch with its input, by keyword too": """
layer, inputs = nn.Linear(8, 8), [torch.ones(8)]

def forward(x):
    x = checkpoint(layer, input=x, use_reentrant=False)
    return checkpoint(layer, *inputs, use_reentrant=False) + x
""",
    "a layer of torch without its input under a condition": """
def forward(x, layer=None):
    layer = layer or nn.Linear(8, 8)
    if x is None:
        return checkpoint(nn.Linear(8, 8), use_reentrant=False)
    return layer(x)
""",
    "what is no layer": """
def forward(x):
    return checkpoint(nn.DataParallel(lambda: x), use_reentrant=False)
""",
    "a hook gives the mask": BLOCK
    + "block.register_forward_pre_hook(lambda module, args: (*args, torch.ones(8)))\n"
    + SHORT,
    "the forward of the object is replaced": BLOCK
    + "block.forward = partial(block.forward, mask=torch.ones(8))\n"
    + SHORT,
    "the forward of the class is replaced": BLOCK + "Block.forward = lambda self, x: x * 2\n" + SHORT,
    "setattr in a helper": BLOCK
    + """
def patch(module, function):
    setattr(module, "forward", types.MethodType(function, module))

patch(block, lambda self, x: x * 2)
"""
    + SHORT,
    "setattr of any name": BLOCK
    + """
def patch(module, **functions):
    for name, function in functions.items():
        setattr(module, name, types.MethodType(function, module))

patch(block, forward=lambda self, x: x * 2)
"""
    + SHORT,
    "methods in a loop": BLOCK
    + """
blocks = nn.ModuleList(Block() for _ in range(3))
for block in blocks:
    block.forward = types.MethodType(lambda self, x: x * 2, block)

def forward(x):
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)
    return x
""",
    "a __call__ of its own": BLOCK.replace(
        "    def forward",
        "    def __call__(self, x):\n        return super().__call__(x, torch.ones_like(x))\n\n    def forward",
    )
    + SHORT,
    "no module": BLOCK.replace("(nn.Module)", "").replace(
        "\nblock", "    def __call__(self, x):\n        return self.forward(x, x)\n\nblock"
    )
    + SHORT,
    "a decorated class": """
def with_mask(cls):
    old = cls.forward
    setattr(cls, "for" + "ward", lambda self, x: old(self, x, torch.ones_like(x)))
    return cls

@with_mask
"""
    + BLOCK
    + SHORT,
    "a method that a class of another file defines again": """
class Base(nn.Module):
    def inner(self, x):
        raise NotImplementedError

    def forward(self, x, mask=None):
        if mask is None:
            return checkpoint(self.inner, x, use_reentrant=False)
        return checkpoint(self.inner, x, mask, use_reentrant=False)
""",
    "a method that a class of this file defines again": """
class Base(nn.Module):
    def inner(self, x):
        return x

    def forward(self, x, mask):
        return checkpoint(self.inner, x, mask, use_reentrant=False)

class Net(Base):
    def inner(self, x, mask):
        return x * mask
""",
    "a method that derived classes write": """
class Base(nn.Module):
    def inner(self, x):
        pass

    def forward(self, x, mask):
        return checkpoint(self.inner, x, mask, use_reentrant=False)
""",
    "a method that derived classes may choose by another switch": """
class Base(nn.Module):
    takes_mask = False

    def inner(self, x):
        return x.relu()

    def forward(self, x, mask):
        if self.takes_mask:
            return checkpoint(self.inner, x, mask, use_reentrant=False)
        return checkpoint(self.inner, x, use_reentrant=False)
""",
    "a method of its own that is replaced": """
class Block(nn.Module):
    def __init__(self, inner=None):
        super().__init__()
        if inner is not None:
            self.inner = inner

    def inner(self, x):
        return x.relu()

    def forward(self, x, mask):
        return checkpoint(self.inner, x, mask, use_reentrant=False)
""",
    "a decorated method of its own": """
class Block(nn.Module):
    @with_mask
    def inner(self, x):
        return x.relu()

    def forward(self, x, mask):
        return checkpoint(self.inner, x, mask, use_reentrant=False)
""",
    "a method of its own that asks for its class": """
class Block(nn.Module):
    def inner(self, x):
        return x.relu()

    def forward(self, x, mask):
        if isinstance(self, MaskedBlock):
            return checkpoint(self.inner, x, mask, use_reentrant=False)
        return self.inner(x)
""",
    "a keyword that the reentrant variant refuses first": """
def run(x):
    return x

def forward(x):
    return checkpoint(run, x, mask=x, use_reentrant=True)
""",
    "a class that derived classes choose": BLOCK
    + """
class Net(nn.Module):
    block_class = Block

    def __init__(self):
        super().__init__()
        self.block = self.block_class()

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
""",
    "a class of this file that puts another block in the place": BLOCK
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)

class Sub(Net):
    def __init__(self):
        super().__init__()
        self.block = nn.Identity()
""",
    "hooks that are written": BLOCK + "block._forward_pre_hooks[0] = lambda module, args: (*args, args[0])\n" + SHORT,
    "a block that says what others do": BLOCK.replace("return x * mask", "raise NotImplementedError") + SHORT,
    "a test of the error": BLOCK
    + """
def test_needs_mask():
    with pytest.raises(TypeError):
        checkpoint(block, torch.ones(2, requires_grad=True), use_reentrant=False)
""",
    "a test of the error of a caller": BLOCK
    + SHORT
    + """
def test_needs_mask():
    with pytest.raises(TypeError):
        forward(torch.ones(2, requires_grad=True))
""",
    "a suppressed error": BLOCK
    + """
with contextlib.suppress(TypeError):
    checkpoint(block, torch.ones(2, requires_grad=True), use_reentrant=False)
""",
    "a condition that asks for the signature": BLOCK
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.needs_mask = "mask" in self.block.forward.__code__.co_varnames

    def forward(self, x):
        if self.needs_mask:
            return checkpoint(self.block, x, x, use_reentrant=False)
        return checkpoint(self.block, x, use_reentrant=False)
""",
    "a keyword beside a parameter by position only": """
def run(x, /, **parts):
    return x * parts["x"]

def forward(x, y):
    return checkpoint(run, x, x=y, use_reentrant=False)
""",
}


def codes(program: str) -> set[str]:
    return {finding.code for finding in check_source(HEAD + textwrap.dedent(program), notes=True)}


@pytest.mark.parametrize("name", RAISING)
def test_a_call_that_does_not_fit_is_reported(name):
    assert codes(RAISING[name]) == {"CKPT308"}


@pytest.mark.parametrize("name", RIGHT)
def test_what_may_fit_is_not_reported(name):
    assert "CKPT308" not in codes(RIGHT[name])
