"""How scripts freeze what stands in front of reentrant checkpoints: each way is read, and what it leaves trained."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import itertools
import re
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Linear(width, width)
        self.lora_a = nn.Linear(width, 8, bias=False)
        self.lora_b = nn.Linear(8, width, bias=False)

    def forward(self, x, mask=None):
        x = self.norm(x)
        return x + self.mlp(x) + self.lora_b(self.lora_a(x))

class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.tokens = nn.Embedding(1000, width)
        self.places = nn.Embedding(128, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(4)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 1000)

    def forward(self, ids, mask=None):
        x = self.tokens(ids) + self.places(torch.arange(ids.size(1)))
        for block in self.blocks:
            x = checkpoint(block, x, mask, use_reentrant=True)
        return self.head(self.norm(x))

def train(loader):
    model = Net()
    {0}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    model.train()
    for ids, labels in loader:
        nn.functional.cross_entropy(model(ids).flatten(0, 1), labels.flatten()).backward()
        optimizer.step()

train(loader)
"""
NAMED = "for name, p in model.named_parameters():\n        "
OFF, ON = "p.requires_grad = False", "p.requires_grad = True"
ALL_OFF = f"for p in model.parameters():\n        {OFF}\n    "
MODULES = "for name, m in model.named_modules():\n        "
#: What freezes both embeddings, and leaves a part of the blocks trained.
FROZEN = {
    "each": "for m in (model.tokens, model.places):\n        m.requires_grad_(False)",
    "by name": f"{NAMED}if 'lora' not in name:\n            {OFF}",
    "by the first part of the name": f"{NAMED}if name.split('.')[0] in ['tokens', 'places']:\n            {OFF}",
    "all, then by name": f"{ALL_OFF}{NAMED}if 'lora' in name:\n            {ON}",
    "all, then the blocks": "model.requires_grad_(False)\n    for block in model.blocks:\n        block.requires_grad_(True)",
    "all, then the last blocks": f"{ALL_OFF}for p in model.blocks[-2:].parameters():\n        {ON}",
    "all, then by class": (
        f"{ALL_OFF}for m in model.modules():\n        if isinstance(m, nn.Linear):\n            m.requires_grad_(True)"
    ),
    "by class": f"{MODULES}if isinstance(m, nn.Embedding):\n            m.requires_grad_(False)",
    "by one of two classes": f"{MODULES}if isinstance(m, (nn.Embedding, nn.LayerNorm)):\n            m.requires_grad_(False)",
    "by class and parameter": (
        f"{MODULES}if isinstance(m, nn.Embedding):\n            for p in m.parameters():\n                {OFF}"
    ),
    "by class, the weight": f"{MODULES}if isinstance(m, nn.Embedding):\n            m.weight.requires_grad = False",
    "by another class": (
        f"{MODULES}if not isinstance(m, (Net, Block, nn.Linear, nn.LayerNorm, nn.ModuleList)):\n"
        "            m.requires_grad_(False)"
    ),
    "by the names of children": (
        "for name, m in model.named_children():\n        if name not in ('blocks', 'head'):\n"
        f"            for p in m.parameters():\n                {OFF}"
    ),
    "by the names of modules": (
        "for name, m in model.named_modules():\n        if name in ('tokens', 'places'):\n"
        "            m.requires_grad_(False)"
    ),
}
#: What leaves an embedding trained, or may.
TRAINED = {
    "nothing": "pass",
    "one": "model.tokens.requires_grad_(False)",
    "another first part": f"{NAMED}if name.split('.')[0] in ['tokens', 'norm']:\n            {OFF}",
    "one block": f"{NAMED}if name.startswith('blocks.0.'):\n            {OFF}",
    "another": f"{NAMED}if name.startswith('blocks'):\n            {OFF}",
    "all, then one block": f"{ALL_OFF}{NAMED}if name.startswith('blocks.3.') and thaw:\n            {ON}",
    "all but one block": f"{NAMED}if not name.startswith(('blocks.3.', 'tokens')):\n            {OFF}",
    "all, then an embedding too": (
        f"{ALL_OFF}{NAMED}if 'lora' in name:\n            {ON}\n    model.places.requires_grad_(True)"
    ),
    "all, then all": "model.requires_grad_(False)\n    model.requires_grad_(True)",
    "all for good": "model.requires_grad_(False)",
    "all, then the head": "model.requires_grad_(False)\n    model.head.requires_grad_(True)",
    "some of a list": "[p.requires_grad_(False) for name, p in model.named_parameters() if 'norm' in name]",
    "another class": f"{MODULES}if isinstance(m, nn.LayerNorm):\n            m.requires_grad_(False)",
    "a base of all": f"{MODULES}if isinstance(m, nn.Module):\n            m.requires_grad_(False)",
    "a class and a name": (
        f"{MODULES}if isinstance(m, nn.Embedding) and name == 'tokens':\n            m.requires_grad_(False)"
    ),
    "the biases of a class": f"{MODULES}if isinstance(m, nn.Embedding):\n            m.bias.requires_grad = False",
    "a class and a flag": f"{MODULES}if isinstance(m, nn.Embedding) and frozen:\n            m.requires_grad_(False)",
    "all, then the class": (
        f"{ALL_OFF}{MODULES}if isinstance(m, (nn.Linear, nn.Embedding)):\n            m.requires_grad_(True)"
    ),
    "another child": (
        "for name, m in model.named_children():\n        if name != 'tokens':\n            m.requires_grad_(False)"
    ),
    "under a flag": f"{ALL_OFF}{NAMED}if 'lora' in name or thaw:\n            {ON}",
}


def codes(lines: str) -> list[str]:
    return [found.code for found in check_source(SCRIPT.replace("{0}", lines))]


@pytest.mark.parametrize("way", FROZEN)
def test_checkpoints_behind_frozen_embeddings_lose_the_gradients(way):
    assert codes(FROZEN[way]) == ["CKPT104"]


@pytest.mark.parametrize("way", TRAINED)
def test_nothing_is_said_where_an_embedding_may_train_or_no_block_does(way):
    assert codes(TRAINED[way]) == []
