"""A function that checkpoints itself runs without an end, or has a way out, as the programs show that are run."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

NET = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, flag=True):
        super().__init__()
        self.flag = flag
        self.linear = nn.Linear(4, 4)

    def compute(self, x):
        return self.linear(x)

BODY

net = Net()
net(torch.randn(2, 4, requires_grad=True)).sum().backward()
"""
ELSE = "\n        return self.compute(x)"
GIVEN = "    def forward(self, x):\n        if TEST:\n            return checkpoint(CALL)" + ELSE
SELF = "self.forward, x, use_reentrant=False"
WRONG = {
    "a flag": GIVEN.replace("TEST", "self.flag").replace("CALL", SELF),
    "the reentrant variant": GIVEN.replace("TEST", "self.flag").replace("CALL", "self.forward, x, use_reentrant=True"),
    "the mode too": GIVEN.replace("TEST", "self.flag and self.training").replace("CALL", SELF),
    "the input": GIVEN.replace("TEST", "self.training and x.requires_grad").replace("CALL", SELF),
    "recording": GIVEN.replace("TEST", "torch.is_grad_enabled() and self.flag").replace("CALL", SELF),
    "the module": GIVEN.replace("TEST", "self.flag").replace("CALL", "self, x, use_reentrant=False"),
    "a lambda": GIVEN.replace("TEST", "self.flag").replace("CALL", "lambda t: self.forward(t), x, use_reentrant=False"),
    "no condition": f"    def forward(self, x):\n        return checkpoint({SELF})",
    "the other way first": "    def forward(self, x):\n        if not self.flag:\n            return self.linear(x)\n"
    f"        return checkpoint({SELF})",
    "another method between": f"    def forward(self, x):\n        if self.flag:\n            return self.run(x){ELSE}\n\n"
    f"    def run(self, x):\n        return checkpoint({SELF})",
    "a method": "    def forward(self, x):\n        return self.run(x)\n\n"
    f"    def run(self, x):\n        if self.flag:\n            return checkpoint(self.run, x, use_reentrant=False){ELSE}",
}
RIGHT = {
    "another method": GIVEN.replace("TEST", "self.flag").replace("CALL", "self.compute, x, use_reentrant=False"),
    "the flag is switched off": "    def forward(self, x):\n        if self.flag:\n            self.flag = False\n"
    f"            x = checkpoint({SELF})\n            return x{ELSE}",
    "a method switches it off": "    def off(self):\n        self.flag = False\n\n"
    "    def forward(self, x):\n        if self.flag:\n            self.off()\n"
    f"            return checkpoint({SELF}){ELSE}",
    "an argument": "    def forward(self, x, again=True):\n        if again:\n"
    f"            return checkpoint(self.forward, x, False, use_reentrant=False){ELSE}",
    "recording, reentrant": GIVEN.replace("TEST", "torch.is_grad_enabled()").replace(
        "CALL", "self.forward, x, use_reentrant=True"
    ),
    "the parent's": "    def forward(self, x):\n        return self.linear(x)\n\n"
    "class Sub(Net):\n    def forward(self, x):\n        return checkpoint(super().forward, x, use_reentrant=False)\n\nNet = Sub",
    "a switch from outside": "    def forward(self, x):\n        return self.linear(x)\n\n    def run(self, x):\n"
    f"        return checkpoint({SELF})",
    "a subclass has another": f"    def forward(self, x):\n        return checkpoint({SELF})\n\n"
    "class Sub(Net):\n    def forward(self, x):\n        return self.linear(x)\n\nNet = Sub",
}


def found(body: str) -> list[str]:
    text = NET.replace("BODY", body)
    return [it.message for it in check_source(text, "train.py") if it.code == "CKPT306"]


@pytest.mark.parametrize("name", WRONG)
def test_it_has_no_end(name):
    assert len(found(WRONG[name])) == 1
    with pytest.raises(RecursionError):
        exec(NET.replace("BODY", WRONG[name]), {})


@pytest.mark.parametrize("name", RIGHT)
def test_it_has_a_way_out(name):
    assert found(RIGHT[name]) == []
    if name != "recording, reentrant":  # It comes to the same call in the backward pass.
        exec(NET.replace("BODY", RIGHT[name]), {})
