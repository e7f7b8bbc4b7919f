"""Data that goes through the `forward` of one module into another, and a helper that checkpoints: a run decides."""

from __future__ import annotations

import warnings

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint as cp

class Encoder(nn.Module):
    def __init__(self, with_cp=True):
        super().__init__()
        self.with_cp = with_cp
        self.stem = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.scale = nn.Parameter(torch.ones(4))

    def _run(self, m, x):
        if self.with_cp and self.training:
            return cp.checkpoint(m, x, use_reentrant=True)
        return m(x)

    def forward(self, img):
        return self._run(self.stem, {given})

class Seg(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.pre, self.head = Encoder({built}), nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x, mask=None):
        {body}
        return self.head(f)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.seg = Seg()

    def forward(self, batch):
        return self.seg(batch)

net = Model()
{prepared}
for _ in range(2):
    x = torch.rand(2, 4)
    {step}
    net(x).sum().backward()
"""
PARTS = {"built": "", "given": "img", "body": "f = self.enc(x)", "prepared": "", "step": "pass"}
LOST = (
    {},
    {"given": "img.contiguous()"},
    {"given": "2 * img - 1"},
    {"body": "f = self.enc(x * 2 - 1)"},
    {"body": "f = self.enc(img=x.flip(1))"},
    {"body": "f = self.enc(F.pad(x, (0, 0)))"},
    {"body": "a, b = x.chunk(2); f = self.enc(a) + self.enc(b)"},
    {"body": "f = self.enc(x); f = f + self.pre(x)"},
    {"body": "f = self.enc(x) if mask is None else self.enc(x.flip(0))"},
    {"prepared": "net = net.train().to('cpu')"},
    {"prepared": "net.train()\nnet(torch.rand(2, 4))"},
)
#: In these a gradient reaches the region, in this run or in one that the program leaves open.
KEPT = (
    {"given": "img * self.scale"},
    {"given": "self.stem[0](img)"},
    {"body": "f = self.enc(self.pre(x))"},
    {"body": "f = self.enc(x + self.enc.scale)"},
    {"body": "f = self.enc(x) + self.enc(self.pre(x))"},
    {"body": "f = self.enc(self.pre(x) if mask is None else x)"},
    {"body": "x.requires_grad_()\n        f = self.enc(x)"},
    {"step": "x.requires_grad_()"},
    {"step": "x = x.requires_grad_(True)"},
    {"step": "x = F.linear(x, net.seg.pre.weight)"},
    {"built": "with_cp=False"},
    {"built": "False"},
    {"prepared": "net.eval()"},
    {"prepared": "net.seg.enc.register_forward_pre_hook(lambda m, given: (given[0].requires_grad_(),))"},
)


def _codes(text: str) -> list[str]:
    return [finding.code for finding in check_source(text, "train.py")]


def _loses(text: str) -> bool:
    names: dict[str, object] = {}
    with warnings.catch_warnings(action="ignore"):
        exec(compile(text, "train.py", "exec"), names)
    return names["net"].seg.enc.stem[0].weight.grad is None


@pytest.mark.parametrize("parts", LOST, ids=str)
def test_data_that_modules_hand_on(parts):
    text = SCRIPT.format(**PARTS | parts)
    assert _loses(text)
    assert _codes(text) == ["CKPT104"]


@pytest.mark.parametrize("parts", KEPT, ids=str)
def test_data_that_something_gives_a_gradient(parts):
    text = SCRIPT.format(**PARTS | parts)
    assert not _loses(text)
    assert "CKPT104" not in _codes(text)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("target = net(x)", ["CKPT104"]),
        ("with torch.no_grad():\n        target = net(x)", []),
        ("with torch.set_grad_enabled(bool(len(x))):\n        target = net(x)", []),
    ],
)
def test_a_teacher_that_is_only_asked_is_not_trained(asked, expected):
    text = SCRIPT.format(**PARTS | {"step": f"{asked}\n    student = nn.Linear(4, 1)"})
    assert _codes(text.replace("    net(x).sum().b", "    (student(x) - target).sum().b")) == expected


def test_an_encoder_without_gradients_is_not_trained():
    text = SCRIPT.format(**PARTS | {"body": "with torch.no_grad():\n            f = self.enc(x)"})
    assert _codes(text) == []


def test_a_model_that_only_runs_is_not_trained():
    text = SCRIPT.format(**PARTS).replace(".sum().backward()", ".sum()")
    assert _codes(text) == []


@pytest.mark.slow
def test_the_compiler_ignores_the_variant():
    text = SCRIPT.format(**PARTS | {"prepared": "run = torch.compile(net, backend='eager')"}).replace(
        "net(x)", "run(x)"
    )
    assert not _loses(text)


@pytest.mark.parametrize("compiled", ["net.compile()", "net = torch.compile(net)", "net.seg = torch.compile(net.seg)"])
def test_a_compiled_model_is_not_reported(compiled):
    assert "CKPT104" not in _codes(SCRIPT.format(**PARTS | {"prepared": compiled}))


def test_many_modules_that_call_each_other_often():
    """Each hands on what it gets eight times: the ways are not counted."""
    hops = "".join(
        f"class M{i}(nn.Module):\n    def forward(self, x):\n        m = M{i + 1}()\n        return "
        + " + ".join(f"m(x + {k})" for k in range(8))
        + "\n\n"
        for i in range(12)
    )
    text = SCRIPT.format(**PARTS).replace("class Model", hops + "class M12(Seg):\n    pass\n\nclass Model")
    assert _codes(text.replace("self.seg = Seg()", "self.seg = M0()")) == []
