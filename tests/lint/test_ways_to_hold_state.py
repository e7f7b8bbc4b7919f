"""State behind an attribute: an object or a dict that `self` holds, counted in by regions or set by loops around them."""

from textwrap import indent

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

"""
TRAINING = """
net = Net()
opt = torch.optim.Adam(net.parameters())
for x in torch.load("x.pt"):
    net(x).mean().backward()
    opt.step()
    opt.zero_grad()
"""
COUNT = "class Count:\n    n = 0\n"
CONTEXT = "class Ctx:\n    level = 0\n\n"
INNER = "class Inner(nn.Module):\n    def forward(self, x, owner):\n        return owner.now(x)\n\n"


def counting(forward: str, count: str = f"{COUNT}\n", held: str = "self.count = Count()", more: str = "") -> str:
    """A model whose checkpointed blocks have this ``forward``, and hold something to count in."""
    block = f"""\
class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin = nn.Linear(d, d)
        {held}

    def forward(self, x):
{indent(forward, " " * 8)}
{more}
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
"""
    return HEAD + count + block


def looping(loop: str, method: str, context: str = CONTEXT, held: str = "self.ctx = Ctx()") -> str:
    """A model with this ``loop`` in its `forward`, and the ``method`` that it comes to."""
    kept = f"        {held}\n" if held else ""
    net = f"""\
class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
{kept}        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(3))

        self.stem = nn.Linear(d, d)

    def forward(self, x):
        x = self.stem(x)
{indent(loop, " " * 8)}
        return x

{indent(method, " " * 4)}
"""
    return HEAD + context + net


def in_object(*body: str, given: str = "", level: str = "i") -> str:
    """The loop sets an attribute of an object, and the method has this ``body``."""
    loop = (
        f"for i in range(3):\n    self.ctx.level = {level}\n    x = checkpoint(self.run, x{given}, use_reentrant=False)"
    )
    return looping(loop, "\n".join([f"def run(self, x{given}):", *(f"    {line}" for line in body)]))


def in_dict(*body: str, given: str = "") -> str:
    """The same with an entry of a dict."""
    loop = f'for i in range(3):\n    self.ctx["level"] = i\n    x = checkpoint(self.run, x{given}, use_reentrant=False)'
    method = "\n".join([f"def run(self, x{given}):", *(f"    {line}" for line in body)])
    return looping(loop, method, held='self.ctx = {"level": 0}')


def in_block(returned: str) -> str:
    """The loop sets an attribute of the model itself, and another method makes the checkpoint."""
    loop = "for block in self.blocks:\n    self.now = block\n    x = self.inner(x)"
    return looping(loop, f"def inner(self, x):\n    return {returned}", INNER, "")


def by_state(*first: str) -> str:
    return counting("\n".join([*first, 'return self.lin(x) / self.state["n"]']), "", 'self.state = {"n": 0}')


def by_count(*first: str, count: str = COUNT) -> str:
    return counting("\n".join([*first, "return self.lin(x) / self.count.n"]), f"{count}\n")


#: By code and way, a model.
WRONG = {
    ("CKPT107", "an entry of a dict"): by_state('self.state["n"] = self.state["n"] + 1'),
    ("CKPT107", "an attribute of an object"): by_count("self.count.n += 1"),
    ("CKPT105", "an attribute of an object"): in_object("return self.blocks[self.ctx.level](x)"),
    ("CKPT105", "an entry of a dict"): in_dict('return self.blocks[self.ctx["level"]](x)'),
    ("CKPT105", "a lambda"): in_block("checkpoint(lambda h: self.now(h), x, use_reentrant=False)"),
}
RIGHT = {
    ("CKPT107", "a new dict"): by_state('self.state = {"n": 0}', 'self.state["n"] = self.state["n"] + 1'),
    ("CKPT107", "a new dict, and +="): by_state('self.state = {"n": 0}', 'self.state["n"] += 1'),
    ("CKPT107", "set before"): by_count("self.count.n = 0", "self.count.n += 1"),
    ("CKPT107", "a new object"): by_count("self.count = Count()", "self.count.n += 1"),
    ("CKPT107", "a method resets it"): by_count(
        "self.count.clear()", "self.count.n += 1", count=f"{COUNT}    def clear(self):\n        self.n = 0\n"
    ),
    ("CKPT107", "counted alone"): counting("self.count.n += 1\nreturn self.lin(x)"),
    ("CKPT107", "set under another name"): by_count("count = self.count", "count.n = 1", "self.count.n += 1"),
    ("CKPT107", "counted outside"): counting(
        "return self.lin(x) / self.count.n", more="\n    def tick(self):\n        self.count.n += 1\n"
    ),
    ("CKPT105", "an argument"): in_object("return self.blocks[i](x)", given=", i"),
    ("CKPT105", "set again"): in_object("self.ctx.level = i", "return self.blocks[self.ctx.level](x)", given=", i"),
    ("CKPT105", "a new object"): in_object(
        "self.ctx = Ctx(); self.ctx.level = i", "return self.blocks[self.ctx.level](x)", given=", i"
    ),
    ("CKPT105", "always the same"): in_object("return self.blocks[self.ctx.level](x)", level="1"),
    ("CKPT105", "the last iteration"): looping(
        "for i in range(3):\n    self.ctx.level = i\n    if i < 2:\n        x = self.run(x)\n        continue\n"
        "    x = checkpoint(self.run, x, use_reentrant=False)",
        "def run(self, x):\n    return self.blocks[self.ctx.level](x)",
    ),
    ("CKPT105", "printed"): in_object("print(self.ctx.level)", "return self.blocks[0](x)"),
    ("CKPT105", "an argument beside a dict"): in_dict("return self.blocks[i](x)", given=", i"),
    ("CKPT105", "an entry that is printed"): in_dict('print(self.ctx["level"])', "return self.blocks[0](x)"),
    ("CKPT105", "the module itself"): in_block("checkpoint(self.now, x, use_reentrant=False)"),
    ("CKPT105", "a default"): in_block("checkpoint(lambda h, now=self.now: now(h), x, use_reentrant=False)"),
}


def codes(model):
    return [finding.code for finding in check_source(model + TRAINING)]


@pytest.mark.parametrize("way", WRONG, ids=" ".join)
def test_the_second_run_finds_other_state(way):
    assert way[0] in codes(WRONG[way])


@pytest.mark.parametrize("way", RIGHT, ids=" ".join)
def test_both_runs_find_the_same(way):
    assert way[0] not in codes(RIGHT[way])
