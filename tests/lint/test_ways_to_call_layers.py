"""Layers of finished models that a program calls itself, by keyword, while the reentrant variant is on."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
from torch import nn
from transformers import AutoModel, BertModel, Dinov2Model, ViTModel, Wav2Vec2Model, WhisperModel

REENTRANT = {"use_reentrant": True}

class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.vit = {0}
        self.vit.gradient_checkpointing_enable(gradient_checkpointing_kwargs=REENTRANT)
        self.head = nn.Linear(768, 10)

    def forward(self, x):
        h = self.vit.embeddings(x)
        {1}
        return self.head(h.mean(1))

def train(loader):
    net = Own().train()
    for x, y in loader:
        nn.functional.cross_entropy(net(x), y).backward()
"""
DINO = 'Dinov2Model.from_pretrained("facebook/dinov2-base")'
LOOP = "for layer in self.vit.encoder.layer:\n            h = layer(hidden_states=h)"
WRONG = {
    "a loop": (DINO, LOOP),
    "counted": (DINO, "for n, layer in enumerate(self.vit.encoder.layer):\n            h = layer(hidden_states=h)"),
    "a part of them": (DINO, "for layer in self.vit.encoder.layer[:6]:\n            h = layer(hidden_states=h)"),
    "by number": (DINO, "for n in range(12):\n            h = self.vit.encoder.layer[n](hidden_states=h)"),
    "a dict of arguments": (
        DINO,
        "for layer in self.vit.encoder.layer:\n            given = dict(hidden_states=h)\n            h = layer(**given)",
    ),
    "an Auto class": ('AutoModel.from_pretrained("facebook/dinov2-small")', LOOP),
    "pictures": (
        'ViTModel.from_pretrained("own")',
        "for layer in self.vit.layers:\n            h = layer(hidden_states=h)",
    ),
    "sound": (
        'Wav2Vec2Model.from_pretrained("own")',
        "for layer in self.vit.encoder.layers:\n            h = layer(hidden_states=h, attention_mask=None)",
    ),
    "speech": (
        'WhisperModel.from_pretrained("openai/whisper-small")',
        "for layer in self.vit.encoder.layers:\n            h = layer(hidden_states=h, attention_mask=None)",
    ),
    "proteins": ('AutoModel.from_pretrained("facebook/esm2_t12_35M_UR50D")', LOOP),
}
RIGHT = {
    "by position": (DINO, LOOP.replace("hidden_states=h", "h")),
    "its forward alone": (DINO, LOOP.replace("layer(hidden", "layer.forward(hidden")),
    "weights that are not known": ("AutoModel.from_pretrained(name)", LOOP),
    "another list": (DINO, "for part in self.vit.others:\n            h = part(hidden_states=h)"),
    "a copy of another model": (
        DINO + "\n        self.other = BertModel.from_pretrained('b')",
        LOOP.replace("vit", "other"),
    ),
}
#: The model is given to the object, whose class or a base of it keeps it.
GIVEN = """\
import torch
from torch import nn
from transformers import Wav2Vec2Model

class Base(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone

    def enable(self):
        self.backbone.gradient_checkpointing_enable(dict(use_reentrant=True))

class Tagger(Base):
    def forward(self, wave):
        enc = self.backbone.encoder
        h = enc.layer_norm(self.backbone.project(wave))
        for block in enc.layers:
            h = block(hidden_states=h)
        return h

def train(loader):
    model = Tagger(Wav2Vec2Model.from_pretrained("own"))
    model.enable()
    model.train()
    for wave, target in loader:
        nn.functional.mse_loss(model(wave), target).backward()
"""


def codes(model: str, calls: str) -> set[str]:
    return {found.code for found in check_source(SCRIPT.replace("{0}", model).replace("{1}", calls))}


@pytest.mark.parametrize("way", WRONG)
def test_it_is_cut_off(way):
    assert "CKPT118" in codes(*WRONG[way])


@pytest.mark.parametrize("way", RIGHT)
def test_it_is_not(way):
    assert "CKPT118" not in codes(*RIGHT[way])


def test_the_model_may_be_given_to_the_object():
    assert "CKPT118" in {found.code for found in check_source(GIVEN)}


@pytest.mark.parametrize(
    "right",
    [
        GIVEN.replace("block(hidden_states=h)", "block(h)"),
        GIVEN.replace("use_reentrant=True", "use_reentrant=False"),
        GIVEN.replace('Wav2Vec2Model.from_pretrained("own")', "make(Wav2Vec2Model)"),
        GIVEN.replace("    model.train()", "    model.requires_grad_(False)"),
    ],
)
def test_what_is_given_may_be_right(right):
    assert "CKPT118" not in {found.code for found in check_source(right)}
