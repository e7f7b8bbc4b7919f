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
FROZEN |= {
    "each weight": "for m in (model.tokens, model.places):\n        m.weight.requires_grad = False",
    "chain": f"for p in itertools.chain(model.tokens.parameters(), model.places.parameters()):\n        {OFF}",
    "list sum": f"for p in list(model.tokens.parameters()) + list(model.places.parameters()):\n        {OFF}",
    "getattr": "for name in ('tokens', 'places'):\n        getattr(model, name).requires_grad_(False)",
    "getattr params": f"for name in ('tokens', 'places'):\n        for p in getattr(model, name).parameters():\n            {OFF}",
    "getattr weight": "for name in ('tokens', 'places'):\n        getattr(model, name).weight.requires_grad = False",
    "weights": "model.tokens.weight.requires_grad_(False)\n    model.places.weight.requires_grad_(False)",
    "weights list": f"for p in (model.tokens.weight, model.places.weight):\n        {OFF}",
    "comp": "[p.requires_grad_(False) for p in model.tokens.parameters()]\n    [p.requires_grad_(False) for p in model.places.parameters()]",
    "comp modules": "[m.requires_grad_(False) for m in (model.tokens, model.places)]",
    "dict items": f"for name, p in dict(model.named_parameters()).items():\n        if name.startswith(('tokens', 'places')):\n            {OFF}",
    "get_submodule": "model.get_submodule('tokens').requires_grad_(False)\n    model.get_submodule('places').requires_grad_(False)",
    "get_parameter": "model.get_parameter('tokens.weight').requires_grad = False\n    model.get_parameter('places.weight').requires_grad_(False)",
    "re.match": NAMED + "if re.match(r'(tokens|places)\\.', name):\n            " + OFF,
    "re.search": NAMED + "if re.search('tokens|places', name):\n            " + OFF,
    "any startswith": NAMED + "if any(name.startswith(k) for k in ('tokens', 'places')):\n            " + OFF,
    "any in": NAMED + "if any(k in name for k in ['tokens', 'places']):\n            " + OFF,
    "assign not": NAMED + "p.requires_grad = not any(k in name for k in ['tokens', 'places'])",
    "assign": NAMED + "p.requires_grad = 'blocks' in name or 'head' in name or 'norm' in name",
    "assign_": NAMED + "p.requires_grad_(not name.startswith(('tokens', 'places')))",
    "ifexp": NAMED + "p.requires_grad = False if name.startswith(('tokens', 'places')) else True",
    "ifelse": NAMED
    + "if name.startswith(('tokens', 'places')):\n            "
    + OFF
    + "\n        else:\n            "
    + ON,
    "in set": NAMED + "if name in {'tokens.weight', 'places.weight'}:\n            " + OFF,
    "continue": NAMED + "if name.startswith(('blocks', 'norm', 'head')):\n            continue\n        " + OFF,
    "not startswith": NAMED + "if not name.startswith(('blocks', 'norm', 'head')):\n            " + OFF,
    "list var": f"frozen = [model.tokens, model.places]\n    for m in frozen:\n        for p in m.parameters():\n            {OFF}",
    "modulelist": "nn.ModuleList([model.tokens, model.places]).requires_grad_(False)",
    "list map": "list(map(lambda m: m.requires_grad_(False), (model.tokens, model.places)))",
    "param": "model.tokens.weight = nn.Parameter(model.tokens.weight, requires_grad=False)\n    model.places.weight = nn.Parameter(model.places.weight, requires_grad=False)",
    "reassign": "model.tokens = model.tokens.requires_grad_(False)\n    model.places = model.places.requires_grad_(False)",
    "filter modules": "for m in filter(lambda m: isinstance(m, nn.Embedding), model.modules()):\n        m.requires_grad_(False)",
    "comp for modules": "for m in [m for m in model.modules() if isinstance(m, nn.Embedding)]:\n        m.requires_grad_(False)",
    "two ifs": NAMED
    + "if 'tokens' in name:\n            "
    + OFF
    + "\n        if 'places' in name:\n            "
    + OFF,
    "elif": NAMED + "if 'tokens' in name:\n            " + OFF + "\n        elif 'places' in name:\n            " + OFF,
    "or": NAMED + "if 'tokens' in name or 'places' in name:\n            " + OFF,
    "type is": MODULES + "if type(m) is nn.Embedding:\n            m.requires_grad_(False)",
    "type ==": MODULES + "if type(m) == nn.Embedding:\n            m.requires_grad_(False)",
    "classname": MODULES + "if m.__class__.__name__ == 'Embedding':\n            m.requires_grad_(False)",
    "helper attr": "class Tools:\n        @staticmethod\n        def freeze(m):\n            for p in m.parameters():\n                p.requires_grad = False\n    for m in (model.tokens, model.places):\n        Tools.freeze(m)",
    "helper star": "def freeze(*modules):\n        for m in modules:\n            for p in m.parameters():\n                p.requires_grad = False\n    freeze(model.tokens, model.places)",
    "helper list": "def freeze(modules):\n        for m in modules:\n            m.requires_grad_(False)\n    freeze([model.tokens, model.places])",
    "helper names": "def freeze(model, names):\n        for name, p in model.named_parameters():\n            if any(n in name for n in names):\n                p.requires_grad = False\n    freeze(model, ['tokens', 'places'])",
    "helper flag": "def set_grad(m, flag):\n        for p in m.parameters():\n            p.requires_grad = flag\n    set_grad(model.tokens, False)\n    set_grad(model.places, False)",
    "all then list": ALL_OFF
    + f"for part in (model.blocks, model.norm, model.head):\n        for p in part.parameters():\n            {ON}",
    "all then named": ALL_OFF + NAMED + "if name.startswith('blocks') or name.startswith('head'):\n            " + ON,
    "dict of modules": "parts = {'tokens': model.tokens, 'places': model.places, 'head': model.head}\n    for key in ('tokens', 'places'):\n        parts[key].requires_grad_(False)",
    "setattr": "for p in model.tokens.parameters():\n        setattr(p, 'requires_grad', False)\n    for p in model.places.parameters():\n        setattr(p, 'requires_grad', False)",
    "zip flags": "for m, flag in ((model.tokens, False), (model.places, False), (model.head, True)):\n        m.requires_grad_(flag)",
    "named_children dict": "for name, m in dict(model.named_children()).items():\n        if name in ['tokens', 'places']:\n            m.requires_grad_(False)",
    "modules isinstance params": "for m in model.modules():\n        if isinstance(m, nn.Embedding):\n            for p in m.parameters():\n                p.requires_grad = False",
    "detached trick": "model.tokens.weight.requires_grad, model.places.weight.requires_grad = False, False",
    "chained": "model.tokens.weight.requires_grad = model.places.weight.requires_grad = False",
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

TRAINED |= {
    "flags": "for m, flag in ((model.tokens, False), (model.places, True), (model.head, False)):\n        m.requires_grad_(flag)",
    "elif": NAMED
    + "if 'tokens' in name:\n            "
    + OFF
    + "\n        elif 'place' not in name:\n            "
    + OFF,
    "comp for one": "for m in [m for n, m in model.named_modules() if n == 'tokens']:\n        m.requires_grad_(False)",
    "comp for another class": "for m in [m for m in model.modules() if isinstance(m, nn.LayerNorm)]:\n        m.requires_grad_(False)",
    "type is another": MODULES + "if type(m) is nn.Linear:\n            m.requires_grad_(False)",
    "type is not": MODULES + "if type(m) is not nn.Embedding:\n            m.bias = None",
    "another class name": MODULES + "if type(m).__name__ == 'Block':\n            m.requires_grad_(False)",
    "on where it holds": NAMED + "p.requires_grad = True if name.startswith(('tokens', 'places')) else False",
    "chain of others": f"for p in itertools.chain(model.tokens.parameters(), model.head.parameters()):\n        {OFF}",
    "one by its name": "for name in ('tokens', 'norm'):\n        getattr(model, name).requires_grad_(False)",
    "lists of others": "nn.ModuleList([model.tokens, model.head]).requires_grad_(False)",
    "then one again": "for m in (model.tokens, model.places):\n        m.weight.requires_grad = False\n    model.places.weight.requires_grad = True",
}


def codes(lines: str) -> list[str]:
    return [found.code for found in check_source(SCRIPT.replace("{0}", lines))]


@pytest.mark.parametrize("way", FROZEN)
def test_checkpoints_behind_frozen_embeddings_lose_the_gradients(way):
    assert codes(FROZEN[way]) == ["CKPT104"]


@pytest.mark.parametrize("way", TRAINED)
def test_nothing_is_said_where_an_embedding_may_train_or_no_block_does(way):
    assert codes(TRAINED[way]) == []
