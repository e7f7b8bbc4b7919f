"""Offloading inside a checkpoint whose context was made elsewhere, as an option of the model chooses it."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """import torch
from contextlib import ExitStack, nullcontext
from torch import nn
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint
STORE, NOTHING = save_on_cpu(pin_memory=True), nullcontext()
class Net(nn.Module):
    def __init__(self, d=8, offload=True, where="cpu"):
        super().__init__()
        self.mixer = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.Linear(d, d))
        self.store = {0}
    def mix(self, x):
        with {1}:
            return self.mixer(x)
    def forward(self, x):
        with {2}:
            return checkpoint(self.mix, x, use_reentrant=False)
"""
CHOICE = "save_on_cpu() if offload else nullcontext()"
TABLE = "dict(cpu=save_on_cpu(), gpu=nullcontext())[where]"
RUN = "net = Net({})\nnet(torch.randn(2, 8)).sum().backward()\n"
#: What `self.store` is, what is entered inside and around the checkpoint, and the lines of the script.
BAD = {
    "attribute": ("save_on_cpu()", "self.store", "NOTHING", ""),
    "choice by a default": (CHOICE, "self.store", "NOTHING", RUN.format("")),
    "choice by an argument": (CHOICE, "self.store", "NOTHING", RUN.format("offload=True")),
    "table": (TABLE, "self.store", "NOTHING", RUN.format("")),
    "global": ("None", "STORE", "NOTHING", ""),
    "one of a list": ("[save_on_cpu(), nullcontext()]", "self.store[0]", "NOTHING", ""),
    "made anew": ("save_on_cpu", "self.store()", "NOTHING", ""),
    "stack": ("save_on_cpu()", "ExitStack() as stack, stack.enter_context(self.store)", "NOTHING", ""),
}
RIGHT = {
    "around": ("save_on_cpu()", "NOTHING", "self.store", ""),
    "global around": ("None", "NOTHING", "STORE", ""),
    "choice by an argument": (CHOICE, "self.store", "NOTHING", RUN.format("offload=False")),
    "choice that nobody makes": (CHOICE, "self.store", "NOTHING", ""),
    "choice left open": (CHOICE, "self.store", "NOTHING", "import sys\n" + RUN.format("offload='cpu' in sys.argv")),
    "table": (TABLE, "self.store", "NOTHING", RUN.format("where='gpu'")),
    "one of a list": ("[save_on_cpu(), nullcontext()]", "self.store[1]", "NOTHING", ""),
    "set later": (
        "save_on_cpu()",
        "self.store",
        "NOTHING",
        "net = Net()\nnet.store = nullcontext()\nnet(torch.randn(2, 8)).sum().backward()\n",
    ),
    "of another object": (
        CHOICE,
        "self.store",
        "NOTHING",
        RUN.format("offload=False") + "Net().mix(torch.randn(2, 8)).sum().backward()\n",
    ),
}


def codes(store, inside, around, lines):
    return {finding.code for finding in check_source(SCRIPT.format(store, inside, around) + lines, "net.py")}


@pytest.mark.parametrize("way", BAD.values(), ids=BAD)
def test_offloading_inside(way):
    assert "CKPT212" in codes(*way)


@pytest.mark.parametrize("way", RIGHT.values(), ids=RIGHT)
def test_offloading_that_takes_nothing_from_a_checkpoint(way):
    assert "CKPT212" not in codes(*way)
