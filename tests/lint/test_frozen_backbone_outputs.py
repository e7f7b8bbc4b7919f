"""What a frozen model of transformers gives to a reentrant checkpoint behind it."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModel

class Classifier(nn.Module):
    def __init__(self, freeze=True):
        super().__init__()
        self.encoder = AutoModel.from_pretrained("bert-base-uncased")
        FREEZE
        self.adapter = nn.Sequential(nn.Linear(768, 64), nn.ReLU(), nn.Linear(64, 768))
        self.head = nn.Linear(768, 2)

    def forward(self, ids, mask):
        x = GIVEN
        x = checkpoint(self.adapter, x, use_reentrant=True)
        return self.head(x.mean(1))

SETUP
for ids, mask, y in torch.utils.data.DataLoader([], batch_size=2):
    nn.functional.cross_entropy(net(ids, mask), y).backward()
"""
ALL = "for p in self.encoder.parameters(): p.requires_grad = False"
HIDDEN = "self.encoder(ids, attention_mask=mask).last_hidden_state"
NET = "net = Classifier()"
LOST = {
    "the last hidden state": (ALL, HIDDEN, NET),
    "the first output": ("self.encoder.requires_grad_(False)", "self.encoder(ids, attention_mask=mask)[0]", NET),
    "one of all": (ALL, "self.encoder(input_ids=ids, output_hidden_states=True).hidden_states[-2]", NET),
}
KEPT = {
    "trained": ("pass", HIDDEN, NET),
    "trained above": (f"{ALL}\n        self.encoder.encoder.layer[-1].requires_grad_(True)", HIDDEN, NET),
    "trained by name": ('for n, p in self.encoder.named_parameters(): p.requires_grad = "layer.11" in n', HIDDEN, NET),
    "an adapter": (f"{ALL}\n        self.encoder = get_peft_model(self.encoder, LoraConfig())", HIDDEN, NET),
    "asked": (f"{ALL}\n        self.encoder.enable_input_require_grads()", HIDDEN, NET),
    "checkpointed itself": (f"{ALL}\n        self.encoder.gradient_checkpointing_enable()", HIDDEN, NET),
    "trained later": (ALL, HIDDEN, f"{NET}\nfor p in net.parameters(): p.requires_grad = True"),
    "a trained input": (ALL, "self.encoder(inputs_embeds=nn.Linear(4, 768)(ids)).last_hidden_state", NET),
}


def _found(freeze: str, given: str, setup: str) -> list[str]:
    text = SCRIPT.replace("FREEZE", freeze).replace("GIVEN", given).replace("SETUP", setup)
    return [found.code for found in check_source(text, "train.py") if found.code == "CKPT104"]


@pytest.mark.parametrize(("freeze", "given", "setup"), LOST.values(), ids=LOST)
def test_the_layers_behind_it_learn_nothing(freeze, given, setup):
    assert _found(freeze, given, setup) == ["CKPT104"]


@pytest.mark.parametrize(("freeze", "given", "setup"), KEPT.values(), ids=KEPT)
def test_what_may_need_a_gradient(freeze, given, setup):
    assert _found(freeze, given, setup) == []
