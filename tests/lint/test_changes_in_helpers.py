"""What methods and modules that a checkpointed module calls change: its buffers, and the tensors that they are given."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

CODEBOOK = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

class Codebook(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("codes", torch.randn(16, 8))
        self.register_buffer("average", torch.randn(16, 8))

    @torch.no_grad()
    def update(self, flat):
        UPDATE

    def nearest(self, flat):
        return torch.cdist(flat, self.codes).argmin(-1)

    def forward(self, x):
        FORWARD

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.codebook = nn.Linear(8, 8), Codebook()

    def forward(self, x):
        return checkpoint(self.codebook, self.stem(x), use_reentrant=False)

Net()(torch.randn(4, 8)).mean().backward()
"""
_EMA = "self.average.lerp_(flat, 0.1)\n        self.codes.copy_(self.average)"
_READ = "index = self.nearest(x)"
_STEP = "if self.training:\n            self.update(x.detach())"
_END = "return F.mse_loss(x, F.embedding(index, self.codes))"
CHANGES = {
    "read before": (_EMA, [_READ, _STEP, _END]),
    "read after": (_EMA, [_STEP, _READ, _END]),
    "read by a method": (_EMA, [_STEP, "return self.nearest(x) * x"]),
    "in one statement": ("self.codes.mul_(0.9)", ["return x - (self.update(x) or self.codes)"]),
}
STAYS = {
    "only in evaluation": (_EMA, [_READ, _STEP.replace("self.training", "not self.training"), _END]),
    "under a condition": (
        f"if flat.sum() > 0:\n            {_EMA}".replace("\n        self", "; self"),
        [_READ, _STEP, _END],
    ),
    "not called": (_EMA, [_READ, _END]),
    "overwritten before it is read": ("self.codes.copy_(flat)", [_STEP, _READ, _END]),
    "kept, not used": ("self.average.lerp_(flat, 0.1)", [_READ, _STEP, _END]),
}


def _codes(text: str, code: str) -> list[str]:
    return [found.code for found in check_source(text, "train.py") if found.code == code]


def _codebook(update: str, forward: list[str]) -> str:
    return CODEBOOK.replace("UPDATE", update).replace("FORWARD", "\n        ".join(forward))


@pytest.mark.parametrize(("update", "forward"), CHANGES.values(), ids=CHANGES)
def test_a_method_that_changes_a_buffer_is_run_where_it_is_called(update, forward):
    assert _codes(_codebook(update, forward), "CKPT107") == ["CKPT107"]


@pytest.mark.parametrize(("update", "forward"), STAYS.values(), ids=STAYS)
def test_a_method_that_changes_nothing_for_the_recomputation_is_none(update, forward):
    assert _codes(_codebook(update, forward), "CKPT107") == []


LAYERS = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x, bias):
        CHANGE
        return RESULT

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()

    def forward(self, x, bias=None):
        return x + INNER

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x):
        bias = torch.zeros(8)
        for layer in self.layers:
            x = checkpoint(layer, x, GIVEN, use_reentrant=False)
        return x
"""
_GAIN = "self.linear(x) * bias"


@pytest.mark.parametrize("inner", ["self.attention(x, bias)", "self.attention(x, bias=bias)"])
@pytest.mark.parametrize("given", ["bias", "bias=bias"])
@pytest.mark.parametrize(
    ("change", "result", "is_wrong"),
    [
        ("bias *= 0.5", _GAIN, True),
        ("bias[0] += 1.0", _GAIN, True),
        ("bias = bias * 0.5", _GAIN, False),
        ("bias = bias.clone(); bias *= 0.5", _GAIN, False),
    ],
)
def test_a_tensor_that_is_handed_on_is_a_tensor_there(inner, given, change, result, is_wrong):
    text = LAYERS.replace("CHANGE", change).replace("RESULT", result).replace("INNER", inner).replace("GIVEN", given)
    assert _codes(text, "CKPT117") == ["CKPT117"] * is_wrong


def test_what_is_only_added_may_be_changed_twice():
    text = LAYERS.replace("CHANGE", "bias *= 0.5").replace("RESULT", "self.linear(x) + bias")
    text = text.replace("INNER", "self.attention(x, bias)").replace("GIVEN", "bias=bias")
    assert _codes(text, "CKPT117") == []
