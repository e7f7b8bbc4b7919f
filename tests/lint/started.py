"""Scripts that a launch script starts, and what is found in the folder of both."""

from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO

from hf_ckpt.lint.cli.parser import run_cli

#: A reentrant checkpoint takes no keyword for its function: a mistake where both switches are on.
NET = """\
import argparse, json, sys
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

def str2bool(text):
    return text.lower() in ("yes", "true")

class Net(nn.Module):
    def __init__(self, use_reentrant, ckpt):
        super().__init__()
        self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(8, 2, dropout=0.0) for _ in range(4)])
        self.use_reentrant = use_reentrant
        self.ckpt = ckpt

    def forward(self, x, mask):
        for block in self.blocks:
            if self.ckpt:
                x = checkpoint(block, x, src_mask=mask, use_reentrant=self.use_reentrant)
            else:
                x = block(x, src_mask=mask)
        return x

"""
#: The loop of a script; ``net`` and ``lr`` are its own.
TRAIN = """\
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    for x, mask in loader():
        net(x, mask).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def found(folder, files, *options):
    (folder / ".git").mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    out, err = StringIO(), StringIO()
    with chdir(folder), redirect_stdout(out), redirect_stderr(err):
        run_cli([".", "--output-format", "concise", *options])
    assert err.getvalue() == ""
    return [line.split(": ")[1].split()[0] for line in out.getvalue().splitlines() if ": CKPT" in line]
