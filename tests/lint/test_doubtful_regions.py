"""Regions whose parts the program may change, switch or leave out: nothing is reported, but for the plain program."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

NORM = """
import torch.nn as nn
from mmcv.cnn import ConvModule
from mmengine.registry import MODELS
from torch.utils.checkpoint import checkpoint

@MODELS.register_module()
class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(x)

@MODELS.register_module(name="{name}", force=True)
class Other(nn.Module):
    def forward(self, x):
        return x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = {built}

    def inner(self, x):
        return self.conv({given})

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)
"""
BN = 'ConvModule(8, 8, 3, norm_cfg=dict(type="BN"))'
REGISTERED = 'MODELS.build(dict(type="Norm"))'
UNTRACKED = BN.replace('"BN"', '"BN", track_running_stats=False')


@pytest.mark.parametrize(
    ("built", "given", "name", "found"),
    [
        (BN, "x", "Other", True),
        (BN.replace('"BN"', '"BN", track_running_stats=True'), "x", "Other", True),
        (UNTRACKED, "x", "Other", False),
        (BN, "x, activate=True, norm=False", "Other", False),
        (BN, "x, True, False", "Other", False),
        (REGISTERED, "x", "Other", True),
        (REGISTERED, "x", "Norm", False),
    ],
)
def test_a_norm_of_a_configuration_that_may_be_left_out(built, given, name, found):
    codes = [finding.code for finding in check_source(NORM.format(built=built, given=given, name=name), notes=True)]
    assert codes == ["CKPT106"] * found


CUT = """
from torch.utils.checkpoint import checkpoint

def forward(model, segments, x, keep):
    {hook}
    for segment in segments:
        x = checkpoint({block}, x.detach(), use_reentrant=False)
        {then}
    return x
"""


@pytest.mark.parametrize(
    ("block", "hook", "then", "found"),
    [
        ("segment", "pass", "pass", True),
        ("model.cell", "pass", "pass", False),
        ("segment", "[each.register_forward_hook(keep) for each in segments]", "pass", False),
        ("segment", "pass", "model.loss_and_backward()", False),
    ],
)
def test_a_result_that_is_cut_off_on_purpose(block, hook, then, found):
    codes = [finding.code for finding in check_source(CUT.format(block=block, hook=hook, then=then))]
    assert codes == ["CKPT121"] * found


TWICE = """
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def run(self, x):
        return self.down(self.up(x).relu())

    def forward(self, x):
        if {condition}:
            return checkpoint(self.run, x, use_reentrant=True)
        return self.run(x)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp, self.other = nn.LayerNorm(8), Mlp(), Mlp()
        {then}

    def forward(self, x):
        return self.norm({result})

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return x
"""


@pytest.mark.parametrize(
    ("condition", "then", "result", "found"),
    [
        ("self.training", "pass", "self.mlp(x)", True),
        ("self.training", "self.mlp.eval()", "self.mlp(x)", False),
        ("self.training", "self.mlp.forward = self.mlp.run", "self.mlp(x)", False),
        ("self.training", "setattr(self.mlp, 'forward', self.mlp.run)", "self.mlp(x)", False),
        ("self.training", "pass", "self.other(self.mlp(x))", False),
    ],
)
def test_a_part_that_may_not_checkpoint_or_is_one_of_several(condition, then, result, found):
    codes = [finding.code for finding in check_source(TWICE.format(condition=condition, then=then, result=result))]
    assert codes == ["CKPT402"] * found


GRADLESS = """
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {first}
        self.block, self.head = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 1)

    def forward(self):
        return self.head(checkpoint(self.block, self.first, use_reentrant=True))

net = Net()
{then}
"""
FROZEN = "self.first = nn.Parameter(torch.zeros(4, 8), requires_grad=False)"
BUFFER = "self.register_buffer('first', torch.zeros(4, 8))"


@pytest.mark.parametrize(
    ("first", "then", "found"),
    [
        (FROZEN, "", True),
        (FROZEN, "net.requires_grad_(True)", False),
        (FROZEN, "for parameter in net.parameters():\n    parameter.requires_grad = True", False),
        (BUFFER, "", True),
        (BUFFER, "del net.first", False),
        (BUFFER, "net.first.requires_grad_()", False),
        (BUFFER + "; del self.first; self.first = nn.Parameter(torch.zeros(4, 8))", "", False),
    ],
)
def test_an_input_whose_gradient_may_be_switched_on(first, then, found):
    codes = [finding.code for finding in check_source(GRADLESS.format(first=first, then=then))]
    assert codes == ["CKPT104"] * found
