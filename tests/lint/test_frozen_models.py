"""A model that is frozen as a whole before parts of it are made anew: a run decides which parameters train."""

from __future__ import annotations

import warnings

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

class Lora(nn.Module):
    def __init__(self, lin):
        super().__init__()
        self.lin = lin
        self.a, self.b = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.randn(4, 2))

    def forward(self, x):
        return self.lin(x) + F.linear(F.linear(x, self.a), self.b)

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, x):
        return x + self.up(self.norm(x)).relu()

class Stem(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(9, 4), nn.Embedding(5, 4)

class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos, self.drop = nn.Embedding(9, 4), nn.Embedding(5, 4), nn.Dropout(0.0)
        {built}
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.out = nn.Linear(4, 9)

    def forward(self, ids):
        x = {front}
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)
        return self.out(x)

{frozen}def adapt(model):
    for layer in model.layers:
        layer.up = Lora(layer.up)
    model.out.weight.requires_grad_(True)

def main({arguments}):
    model = LM()
    {prepared}
    for _ in range(2):
        loss = model(torch.randint(0, 9, (2, 5))).mean()
        loss.backward()
        {after}
    return model

if __name__ == "__main__":
    trained = main()
"""
FREEZE = """\
def freeze(model):
    for p in model.parameters():
        p.requires_grad_(False)

"""
PARTS = {
    "built": "pass",
    "front": "self.tok(ids)",
    "arguments": "",
    "prepared": "freeze(model)\nadapt(model)",
    "after": "pass",
}
POSITIONS = "self.tok(ids) + self.pos(torch.arange(ids.shape[1]))"
LOST = (
    {},
    {"front": POSITIONS},
    {"front": f"self.drop({POSITIONS})"},
    {"front": "F.dropout(self.tok(ids), 0.0)"},
    {"prepared": "for p in model.parameters():\n    p.requires_grad = False\nadapt(model)"},
    {"prepared": "for _, p in model.named_parameters():\n    p.requires_grad = False\nadapt(model)"},
    {"prepared": "model.requires_grad_(False)\nadapt(model)"},
    {"prepared": "model.eval().requires_grad_(False)\nmodel.train()\nadapt(model)"},
    {"prepared": "freeze(model)\nadapt(model)\nmodel.train()"},
    {"built": "self.stem = Stem()", "front": "self.stem.tok(ids)"},
    {"built": "self.parts = nn.ModuleDict({'tok': nn.Embedding(9, 4)})", "front": "self.parts['tok'](ids)"},
    {"after": "model.zero_grad()"},
)
#: In these a gradient reaches the layers, in this run or in one that the program leaves open.
KEPT = (
    {"prepared": "pass"},
    {"prepared": "adapt(model)"},
    {"prepared": "freeze(model)\nadapt(model)\nmodel.tok.requires_grad_(True)"},
    {"prepared": "freeze(model)\nadapt(model)\nmodel.tok.weight.requires_grad = True"},
    {"prepared": "freeze(model)\nadapt(model)\nfor p in model.parameters():\n    p.requires_grad = True"},
    {"prepared": "freeze(model)\nadapt(model)\nmodel.tok = nn.Embedding(9, 4)"},
    {"prepared": "freeze(model)\nadapt(model)\nmodel.tok.weight = nn.Parameter(torch.randn(9, 4))"},
    {"prepared": "teacher = LM()\nfreeze(teacher)\nadapt(model)"},
    {"prepared": "teacher = copy.deepcopy(model)\nfreeze(teacher)\nadapt(model)"},
    {"prepared": "teacher = model\nmodel = copy.deepcopy(model)\nfreeze(teacher)\nadapt(model)"},
    {"prepared": "for p in model.layers.parameters():\n    p.requires_grad_(False)\nadapt(model)"},
    {"arguments": "full=True", "prepared": "if not full:\n    freeze(model)\nadapt(model)"},
    {"arguments": "lora=False", "prepared": "if lora:\n    freeze(model)\nadapt(model)"},
    {
        "prepared": "for n, p in model.named_parameters():\n    if 'tok' not in n:\n        p.requires_grad_(False)\nadapt(model)"
    },
    {"front": POSITIONS, "prepared": "freeze(model)\nmodel.pos.requires_grad_(True)\nadapt(model)"},
    {
        "built": "self.shift = nn.Parameter(torch.zeros(4))",
        "front": "self.tok(ids) + self.shift",
        "prepared": "adapt(model)",
    },
    {"built": "self.many = [nn.Embedding(9, 4)]", "front": "self.many[0](ids)"},
    {
        "prepared": "freeze(model)\nadapt(model)\nmodel.tok = Lora(model.tok)",
        "front": "F.linear(self.tok.b, self.tok.a.T)[ids[0] % 2]",
    },
)
#: Nothing in the layers trains, so that nothing is lost.
FROZEN = (
    {"prepared": "freeze(model)\nmodel.out.requires_grad_(True)"},
    {"prepared": "adapt(model)\nfreeze(model)\nmodel.out.requires_grad_(True)"},
)


def _text(parts: dict[str, str]) -> str:
    given = PARTS | parts
    given["frozen"] = FREEZE if "freeze(" in given["prepared"] else ""
    return SCRIPT.format(**given | {"prepared": given["prepared"].replace("\n", "\n    ")})


def _codes(text: str) -> list[str]:
    return [finding.code for finding in check_source(text, "train.py")]


def _model(text: str) -> object:
    names: dict[str, object] = {"__name__": "__main__"}
    with warnings.catch_warnings(action="ignore"):
        exec(compile(text, "train.py", "exec"), names)
    return names["trained"]


def _trained(text: str) -> list[object]:
    return [p for p in _model(text).layers.parameters() if p.requires_grad]


@pytest.mark.parametrize("parts", LOST, ids=str)
def test_adapters_behind_a_frozen_front_get_nothing(parts):
    trained = _trained(_text(parts))
    assert trained
    assert all(p.grad is None for p in trained)
    assert _codes(_text(parts)) == ["CKPT104"]


@pytest.mark.parametrize("parts", KEPT, ids=str)
def test_a_front_that_trains_or_may_train(parts):
    assert any(p.grad is not None for p in _trained(_text(parts)))
    assert "CKPT104" not in _codes(_text(parts))


@pytest.mark.parametrize("parts", FROZEN, ids=str)
def test_layers_that_do_not_train_lose_nothing(parts):
    assert _trained(_text(parts)) == []
    assert "CKPT104" not in _codes(_text(parts))


@pytest.mark.parametrize(
    "change",
    [
        ("trained = main()", "from helpers import main as run\n    run(LM)"),
        ("    adapt(model)\n", "    adapt(model)\n    thaw(model)\n"),
        ("def main(", "def tune(model):\n    model(torch.arange(4)).mean().backward()\n\ndef main("),
        ("    model = LM()\n", "    models = [LM() for _ in range(2)]\n    model = models[0]\n    train(models[1])\n"),
        ("    adapt(model)\n", "    if input():\n        adapt(model)\n"),
    ],
)
def test_what_other_code_may_do_is_left_open(change):
    text = "from helpers import thaw, train\n" + _text({})
    assert _codes(text) == ["CKPT104"]
    assert change[0] in text
    assert "CKPT104" not in _codes(text.replace(*change))


def test_layers_of_two_stacks_are_not_mixed_up():
    """The adapters are in the decoder only; the encoder has the same class of layers, and nothing of it trains."""
    text = _text({}).replace("model = LM()", "encoder, model = LM(), LM()\n    freeze(encoder)")
    assert "CKPT104" not in _codes(text)
