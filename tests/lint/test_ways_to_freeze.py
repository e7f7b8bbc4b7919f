"""Parts in front of reentrant checkpoints, frozen in the ways that scripts freeze parts; runs show what trains."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """import torch
import torchvision
from torch import nn
from torch.utils.checkpoint import checkpoint
class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(d, d), nn.ReLU())
        self.pos = nn.Linear(d, d)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(4)])
        self.head = nn.Linear(d, d)
    def forward(self, x):
        h = self.pos(self.stem(x))
        for b in self.blocks:
            h = checkpoint(b, h, use_reentrant=True)
        return self.head(h)
net = Net()
"""
TAIL = """opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.1)
for x, y in torch.utils.data.DataLoader(data, batch_size=4):
    nn.functional.mse_loss(net(x), y).backward()
    opt.step()
    opt.zero_grad()
"""
FROZEN = {
    "apply": """
def freeze(m):
    for p in m.parameters():
        p.requires_grad = False
net.stem.apply(freeze)
net.pos.apply(freeze)
""",
    "apply lambda": """
for m in (net.stem, net.pos):
    m.apply(lambda t: t.requires_grad_(False))
""",
    "named_children": """
for name, child in net.named_children():
    if name in ("stem", "pos"):
        for p in child.parameters():
            p.requires_grad = False
""",
    "named_children not": """
for name, child in net.named_children():
    if name not in ("blocks", "head"):
        child.requires_grad_(False)
""",
    "modules loop": """
def freeze(m):
    for p in m.parameters():
        p.requires_grad = False
for m in [net.stem, net.pos]:
    m.eval()
    freeze(m)
""",
    "map": """
def freeze(m):
    for p in m.parameters():
        p.requires_grad = False
list(map(freeze, [net.stem, net.pos]))
""",
    "comp": """
[p.requires_grad_(False) for m in (net.stem, net.pos) for p in m.parameters()]
""",
    "chain": """
import itertools
for p in itertools.chain(net.stem.parameters(), net.pos.parameters()):
    p.requires_grad = False
""",
    "sum": """
for p in [*net.stem.parameters(), *net.pos.parameters()]:
    p.requires_grad = False
""",
    "names": """
for n, p in net.named_parameters():
    if n.split(".")[0] in {"stem", "pos"}:
        p.requires_grad = False
""",
    "not names": """
for n, p in net.named_parameters():
    p.requires_grad = n.startswith(("blocks", "head"))
""",
    "getattr": """
for name in ["stem", "pos"]:
    getattr(net, name).requires_grad_(False)
""",
    "setattr": """
for m in (net.stem, net.pos):
    for p in m.parameters():
        setattr(p, "requires_grad", False)
""",
    "all then on": """
net.requires_grad_(False)
net.blocks.requires_grad_(True)
net.head.requires_grad_(True)
""",
    "all then on loop": """
for p in net.parameters():
    p.requires_grad = False
for m in (*net.blocks, net.head):
    for p in m.parameters():
        p.requires_grad = True
""",
    "helper varargs": """
def freeze(m):
    for p in m.parameters():
        p.requires_grad = False
def freeze_all(*mods):
    for m in mods:
        freeze(m)
freeze_all(net.stem, net.pos)
""",
    "helper names": """
def freeze(m):
    for p in m.parameters():
        p.requires_grad = False
def freeze_named(model, names):
    for n in names:
        freeze(getattr(model, n))
freeze_named(net, ["stem", "pos"])
""",
    "helper prefix": """
def freeze_by(model, *prefixes):
    for n, p in model.named_parameters():
        if any(n.startswith(q) for q in prefixes):
            p.requires_grad = False
freeze_by(net, "stem", "pos")
""",
    "class": """
class Freezer:
    def __init__(self, names):
        self.names = names
    def __call__(self, model):
        for n in self.names:
            getattr(model, n).requires_grad_(False)
        return model
net = Freezer(("stem", "pos"))(net)
""",
}
TRAINED = {
    "apply of another part": """
net.head.apply(lambda t: t.requires_grad_(False))
""",
    "the other children": """
for name, child in net.named_children():
    if name in ("blocks", "head"):
        child.requires_grad_(False)
""",
    "a part of the stem trains": """
for i, child in enumerate(net.children()):
    if i < 1:
        for p in child.parameters():
            p.requires_grad = False
""",
    "switched on again": """
for m in (net.stem, net.pos):
    m.requires_grad_(False)
net.pos.requires_grad_(True)
""",
    "by prefixes of other parts": """
def freeze_by(model, *prefixes):
    for n, p in model.named_parameters():
        if any(n.startswith(q) for q in prefixes):
            p.requires_grad = False
freeze_by(net, "head", "blocks.0")
""",
}


def codes(freezing):
    return [finding.code for finding in check_source(HEAD + freezing + TAIL)]


@pytest.mark.parametrize("freezing", FROZEN.values(), ids=FROZEN)
def test_blocks_behind_frozen_parts_lose_their_gradients(freezing):
    assert codes(freezing) == ["CKPT104"]


@pytest.mark.parametrize("freezing", TRAINED.values(), ids=TRAINED)
def test_blocks_behind_a_part_that_trains_keep_them(freezing):
    assert codes(freezing) == []


OWN = HEAD.replace(
    "class Net",
    """class Stem(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.first, self.second = nn.Linear(d, d), nn.Linear(d, d)
    def forward(self, x):
        return torch.relu(self.second(torch.relu(self.first(x))))
class Net""",
).replace(
    "nn.Sequential(nn.Linear(d, d), nn.ReLU())\n        self.pos = nn.Linear(d, d)",
    "Stem(d)\n        self.pos = Stem(d)",
)
#: The same, where each of them freezes what it is made of.
FREEZES_ITSELF = OWN.replace(
    "nn.Linear(d, d), nn.Linear(d, d)\n",
    "nn.Linear(d, d), nn.Linear(d, d)\n"
    "        self.first.requires_grad_(False)\n        self.second.requires_grad_(False)\n",
    1,
)
FREEZE = "net.stem.requires_grad_(False)\nnet.pos.requires_grad_(False)\n"
FROZEN_OBJECTS = {
    "and the head is trained": FREEZE + "net.head.requires_grad_(True)",
    "and the parameters of the blocks": FREEZE + "for p in net.blocks.parameters():\n    p.requires_grad = True",
    "and each block": FREEZE + "for block in net.blocks:\n    block.requires_grad_(True)",
    "and a weight": FREEZE + "net.head.weight.requires_grad = True",
    "with the model": "net.requires_grad_(False)\nnet.blocks.requires_grad_(True)\nnet.head.requires_grad_(True)",
    "by their parameters": """for part in (net.stem, net.pos):
    for p in part.parameters():
        p.requires_grad = False
for p in net.head.parameters():
    p.requires_grad = True""",
    "and a loss is marked": FREEZE + "nn.functional.mse_loss(net(torch.ones(1, 8)), y).requires_grad_(True)",
    "and a mean is marked": FREEZE + "net(torch.ones(1, 8)).square().mean().requires_grad_()",
}
TRAINED_OBJECTS = {
    "but for a layer": FREEZE + "net.stem.second.requires_grad_(True)",
    "but all is switched on": FREEZE + "net.requires_grad_(True)",
    "but by kind": FREEZE + "for m in net.modules():\n    if isinstance(m, nn.Linear):\n        m.requires_grad_(True)",
    "but by name": FREEZE + 'for n, p in net.named_parameters():\n    p.requires_grad = "second" in n',
    "but in a container": FREEZE + "nn.ModuleList([net.head, net.pos]).requires_grad_(True)",
    "but one of several": FREEZE + "for part in (net.head, net.stem):\n    part.requires_grad_(True)",
    "with the model, but a layer": "net.requires_grad_(False)\nnet.blocks.requires_grad_(True)\nnet.pos.first.requires_grad_()",
    "with the model, but another comes": "net.requires_grad_(False)\nnet.blocks.requires_grad_(True)\nnet.pos = Stem(8)",
    "but what they gave is marked": FREEZE
    + "net.pos.register_forward_hook(lambda m, i, out: out.requires_grad_(True))",
}


def codes_of_own(freezing):
    return [finding.code for finding in check_source(f"{OWN}{freezing}\n{TAIL}") if finding.code != "CKPT130"]


@pytest.mark.parametrize("freezing", FROZEN_OBJECTS.values(), ids=FROZEN_OBJECTS)
def test_blocks_behind_frozen_objects_lose_their_gradients(freezing):
    assert codes_of_own(freezing) == ["CKPT104"]


@pytest.mark.parametrize("freezing", TRAINED_OBJECTS.values(), ids=TRAINED_OBJECTS)
def test_blocks_behind_an_object_that_trains_keep_them(freezing):
    assert codes_of_own(freezing) == []


TRAINS_AGAIN = {
    "all is switched on": ("", "net.requires_grad_(True)"),
    "a layer is": ("", "net.stem.second.requires_grad_(True)"),
    "the stem is": ("", "net.stem.requires_grad_(True)"),
    "a parameter of its own": ("        self.scale = nn.Parameter(torch.ones(d))\n", ""),
    "a layer that trains": ("        self.norm = nn.LayerNorm(d)\n", ""),
}


def test_blocks_behind_objects_of_frozen_parts_lose_their_gradients():
    assert [found.code for found in check_source(f"{FREEZES_ITSELF}\n{TAIL}")] == ["CKPT104"]


@pytest.mark.parametrize(("part", "switch"), TRAINS_AGAIN.values(), ids=TRAINS_AGAIN)
def test_blocks_behind_objects_with_other_parts_keep_them(part, switch):
    text = FREEZES_ITSELF.replace("        self.first.requires", f"{part}        self.first.requires", 1)
    assert [found.code for found in check_source(f"{text}{switch}\n{TAIL}")] == []


LAYERS = """import argparse
import itertools
import sys
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import NamedTuple
import torch
from transformers import BertForQuestionAnswering

@dataclass
class Plan:
    layers: int = 18

class Fixed:
    layers = 18

class Named(NamedTuple):
    layers: int = 18

class Recipe:
    def __init__(self, layers=18):
        self.layers = layers

    def freeze(self, net):
        for layer in net.bert.encoder.layer[: self.layers]:
            layer.requires_grad_(False)

def off(module):
    for p in module.parameters():
        p.requires_grad_(False)

def freeze(net, plan=Fixed):
    for layer in net.bert.encoder.layer[: plan.layers]:
        off(layer)

def freeze_below(net, plan):
    for i, layer in enumerate(net.bert.encoder.layer):
        if i < plan.layers:
            layer.requires_grad_(False)

def freeze_less(net, layers=18):
    layers = layers - 18
    for layer in net.bert.encoder.layer[:layers]:
        layer.requires_grad_(False)

net = BertForQuestionAnswering.from_pretrained("bert-large-uncased")
net.bert.embeddings.requires_grad_(False)
{}
net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={{"use_reentrant": False}})
net.train()
"""
#: Ways to say how many layers are frozen.
FIRST_LAYERS = {
    "a dataclass": "freeze(net, Plan())",
    "a class": "freeze(net)",
    "a named tuple": "freeze(net, Named())",
    "a namespace": "freeze(net, SimpleNamespace(layers=12))",
    "an object": "Recipe().freeze(net)",
    "an argument": "freeze(net, Plan(layers=4))",
    "a dict": "options = {'n': 4}\nfor layer in net.bert.encoder.layer[0:options['n']]:\n    layer.requires_grad_(False)",
    "islice": "for layer in itertools.islice(net.bert.encoder.layer, Plan().layers):\n    layer.requires_grad_(False)",
    "numbers": "freeze_below(net, Plan())",
    "parts": "for part in (net.bert.pooler, *net.bert.encoder.layer[: Plan().layers]):\n    part.requires_grad_(False)",
}
#: The same with a number that is open, or with none.
OTHER_LAYERS = {
    "an open argument": "freeze(net, Plan(int(sys.argv[1])))",
    "none": "freeze(net, Plan(layers=0))",
    "replaced": "freeze(net, replace(Plan(), layers=0))",
    "written": "plan = Plan()\nplan.layers = int(sys.argv[1])\nfreeze(net, plan)",
    "written by name": "plan = Plan()\nfor name in sys.argv[1:]:\n    setattr(plan, name, 0)\nfreeze(net, plan)",
    "a class that is changed": "Fixed.layers = int(sys.argv[1])\nfreeze(net)",
    "another object": "Recipe(0).freeze(net)",
    "an option": "parser = argparse.ArgumentParser()\nparser.add_argument('--layers', type=int, default=18)\n"
    "freeze(net, parser.parse_args())",
    "the last ones": "for layer in net.bert.encoder.layer[Plan().layers :]:\n    layer.requires_grad_(False)",
    "below none": "freeze_below(net, Plan(layers=0))",
    "a parameter that is set again": "freeze_less(net)",
    "a slice of a slice": "for layer in net.bert.encoder.layer[6:][:4]:\n    layer.requires_grad_(False)",
}


@pytest.mark.parametrize("freezing", FIRST_LAYERS.values(), ids=FIRST_LAYERS)
def test_first_layers_are_frozen_by_a_known_number(freezing):
    assert [finding.code for finding in check_source(LAYERS.format(freezing))] == ["CKPT405"]


@pytest.mark.parametrize("freezing", OTHER_LAYERS.values(), ids=OTHER_LAYERS)
def test_first_layers_train_where_the_number_is_open_or_none(freezing):
    assert not check_source(LAYERS.format(freezing))
