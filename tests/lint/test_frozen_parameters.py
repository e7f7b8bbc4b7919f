"""Whether a module is frozen, in the spellings that freeze a module by its parameters: what a run says decides."""

from __future__ import annotations

import textwrap
import warnings

import pytest
import torch
from hf_ckpt.lint.analysis.check_text import check_source

MODEL = """\
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Tagger(nn.Module):
    def __init__(self, vectors, trainable=False):
        super().__init__()
        {build}
        self.tower = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        self.head = nn.Linear(4, 2)

    def forward(self, tokens):
        x = {front}
        return self.head(checkpoint(self.tower, x, use_reentrant=True))
"""
#: How the embedding is made and whether its weight is frozen in the end.
EMBEDDINGS = (
    "{emb}\nself.emb.weight.requires_grad = False",
    "{emb}\nself.emb.weight.requires_grad_(False)",
    "{emb}\nself.emb.weight.data.copy_(vectors)\nself.emb.weight.requires_grad_(requires_grad=False)",
    "{emb}\nsetattr(self.emb.weight, 'requires_grad', False)",
    "{emb}\nself.emb.weight = nn.Parameter(vectors, requires_grad=False)",
    "{emb}\nself.emb.weight = nn.Parameter(vectors, False)",
    "{emb}\nself.emb.weight = nn.Parameter(vectors)\nself.emb.weight.requires_grad = False",
    "{emb}\nself.emb.weight = torch.nn.parameter.Parameter(vectors, requires_grad=False)",
    "{emb}\nfor p in self.emb.parameters():\n    p.requires_grad = False",
    "{emb}\nfor _, p in self.emb.named_parameters():\n    p.requires_grad_(False)",
    "emb = nn.Embedding(9, 4)\nemb.weight.requires_grad = False\nself.emb = emb",
    "self.emb = nn.Embedding(9, 4, _weight=vectors, _freeze=True)",
    "{emb}",
    "{emb}\nself.emb.weight.requires_grad_(False)\nself.emb.weight.requires_grad_(True)",
    "{emb}\nself.emb.weight.requires_grad = False\nself.emb.weight = nn.Parameter(vectors)",
    "{emb}\nself.emb.requires_grad_(False)\nself.emb.weight = nn.Parameter(vectors)",
    "{emb}\nself.emb.weight = nn.Parameter(vectors, requires_grad=True)",
    "{emb}\nself.emb.weight.data.requires_grad = False",
    "{emb}\nself.other = nn.Embedding(9, 4)\nself.other.weight.requires_grad = False",
    "self.emb = nn.Embedding(9, 4, _weight=vectors)",
    "self.emb = nn.Embedding.from_pretrained(vectors)",
    "self.emb = nn.Embedding.from_pretrained(vectors)\nself.emb.weight.requires_grad = True",
)
FROZEN = "{emb}\nself.emb.weight.requires_grad = False\n"
LINEAR = FROZEN + "self.front = nn.Linear(4, 4BIAS)"
#: The same for a layer with a bias, behind a frozen embedding.
LAYERS = (
    LINEAR.replace("BIAS", ", bias=False") + "\nself.front.weight.requires_grad = False",
    LINEAR.replace("BIAS", "") + "\nself.front.weight.requires_grad = False\nself.front.bias.requires_grad = False",
    LINEAR.replace("BIAS", "") + "\nself.front.weight.requires_grad = False",
    LINEAR.replace("BIAS", "") + "\nself.front.weight = nn.Parameter(vectors[:4], requires_grad=False)",
)


def _text(build: str, front: str) -> str:
    body = textwrap.indent(build.format(emb="self.emb = nn.Embedding(9, 4, padding_idx=0)"), " " * 8).lstrip()
    return MODEL.format(build=body, front=front)


def _loses(text: str) -> bool:
    """Whether a step leaves the tower without gradients."""
    names: dict[str, type[torch.nn.Module]] = {}
    exec(text, names)
    model = names["Tagger"](torch.randn(9, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model(torch.arange(4)).sum().backward()
    assert model.head.weight.grad is not None
    return model.tower[0].weight.grad is None


@pytest.mark.parametrize(
    ("build", "front"),
    [*((build, "self.emb(tokens)") for build in EMBEDDINGS), *((b, "self.front(self.emb(tokens))") for b in LAYERS)],
)
def test_a_tower_behind_it_gets_gradients_or_not(build, front):
    text = _text(build, front)
    assert ("CKPT104" in [finding.code for finding in check_source(text, "model.py")]) is _loses(text)


@pytest.mark.parametrize(
    "build",
    [
        "{emb}\nif not trainable:\n    self.emb.weight.requires_grad = False",
        "{emb}\nself.emb.weight.requires_grad = trainable",
        "{emb}\nself.emb.weight = nn.Parameter(vectors, requires_grad=trainable)",
        "{emb}\nif not trainable:\n    self.emb.weight = nn.Parameter(vectors, requires_grad=False)",
    ],
)
def test_what_an_argument_decides_is_open(build):
    assert check_source(_text(build, "self.emb(tokens)"), "model.py") == []
