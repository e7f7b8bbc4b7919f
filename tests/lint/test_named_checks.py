"""Checks by the name of a class, wherever the names come from and whatever function asks."""

from __future__ import annotations

from typing import Any

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import functools
import re
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing, CheckpointWrapper

class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(8), Mlp()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(4))

"""

#: `NAME` is what the check asks for: the class of the layers, or another one.
SPELLINGS = {
    "helper": r"""
def check_fn(module):
    name = module.__class__.__name__
    if name == "NAME":
        return True
    return False
net = Net()
apply_activation_checkpointing(net, check_fn=check_fn)
""",
    "constant": r"""
NAMES = ("NAME", "NAMEV2")
net = Net()
apply_activation_checkpointing(net, check_fn=lambda m: type(m).__name__ in NAMES)
""",
    "any": r"""
TARGETS = ["NAME", "Attn"]
net = Net()
apply_activation_checkpointing(net, check_fn=lambda m: any(t in m.__class__.__name__ for t in TARGETS))
""",
    "partial": r"""
def by_name(module, names):
    return module.__class__.__name__ in names
net = Net()
apply_activation_checkpointing(net, check_fn=functools.partial(by_name, names=["NAME"]))
""",
    "partial first": r"""
def by_name(names, module):
    return type(module).__name__ in names
net = Net()
apply_activation_checkpointing(net, check_fn=functools.partial(by_name, {"NAME"}))
""",
    "factory": r"""
def make_check(names):
    def check(module):
        return type(module).__name__ in names
    return check
net = Net()
apply_activation_checkpointing(net, check_fn=make_check(["NAME"]))
""",
    "method": r"""
class Setup:
    def __init__(self):
        self.names = ["NAME"]
        self.net = Net()
    def should_wrap(self, module):
        return module.__class__.__name__ in self.names
    def apply(self):
        apply_activation_checkpointing(self.net, check_fn=self.should_wrap)
Setup().apply()
""",
    "static": r"""
class Setup:
    @staticmethod
    def should_wrap(module):
        return module.__class__.__name__.endswith("NAME")
    def apply(self):
        net = Net()
        apply_activation_checkpointing(net, check_fn=self.should_wrap)
Setup().apply()
""",
    "default": r"""
net = Net()
apply_activation_checkpointing(net, check_fn=lambda m, names=("NAME",): type(m).__name__ in names)
""",
    "loop": r"""
def check(m):
    for name in ["NAME", "Other"]:
        if type(m).__name__ == name:
            return True
    return False
net = Net()
apply_activation_checkpointing(net, check_fn=check)
""",
    "guarded": r"""
def check(m):
    if isinstance(m, CheckpointWrapper):
        return False
    return type(m).__name__ == "NAME"
net = Net()
apply_activation_checkpointing(net, check_fn=check)
""",
    "and isinstance": r"""
net = Net()
apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, nn.Module) and m.__class__.__name__ == "NAME")
""",
    "lower": r"""
net = Net()
apply_activation_checkpointing(net, check_fn=lambda m: "NAME_LOWER" in m.__class__.__name__.lower())
""",
    "get name": r"""
net = Net()
apply_activation_checkpointing(net, check_fn=lambda m: m._get_name() == "NAME")
""",
    "of helper": r"""
def is_layer(module):
    return type(module).__name__ == "NAME"
net = Net()
apply_activation_checkpointing(net, check_fn=lambda m: is_layer(m))
""",
    "regex const": r"""
PATTERN = re.compile(r"^NAME$")
net = Net()
apply_activation_checkpointing(net, check_fn=lambda m: PATTERN.match(type(m).__name__) is not None)
""",
    "args function": r"""
def enable(net, layer_name):
    apply_activation_checkpointing(net, check_fn=lambda m: m.__class__.__name__ == layer_name)
enable(Net(), "NAME")
""",
    "tuple concat": r"""
BASE = ["NAME"]
net = Net()
apply_activation_checkpointing(net, check_fn=lambda m: type(m).__name__ in BASE + ["Attention"])
""",
}

OF_TRANSFORMERS = {
    "hf helper": r"""
from transformers import LlamaForCausalLM
def check(m):
    name = m.__class__.__name__
    return name == "NAME"
model = LlamaForCausalLM.from_pretrained("x")
apply_activation_checkpointing(model, check_fn=check)
""",
    "hf partial": r"""
from transformers import LlamaForCausalLM
def check(m, names):
    return m.__class__.__name__ in names
model = LlamaForCausalLM.from_pretrained("x")
apply_activation_checkpointing(model, check_fn=functools.partial(check, names=["NAME"]))
""",
}

OPEN = {
    "unknown name": r"""
def enable(net, layer_name):
    apply_activation_checkpointing(net, check_fn=lambda m: m.__class__.__name__ == layer_name)
def main(args):
    enable(Net(), args.layer)
""",
    "unknown in or": r"""
def main(args):
    net = Net()
    apply_activation_checkpointing(net, check_fn=lambda m: m.__class__.__name__ == "Block" or args.all)
""",
    "counter": r"""
count = 0
def check(m):
    global count
    if type(m).__name__ == "Layer":
        count += 1
        return count % 2 == 0
    return False
net = Net()
apply_activation_checkpointing(net, check_fn=check)
""",
    "named elsewhere": r"""
from mine import LAYERS
net = Net()
apply_activation_checkpointing(net, check_fn=lambda m: type(m).__name__ in LAYERS)
""",
}


def codes(case: str, name: str) -> list[str]:
    return [finding.code for finding in check_source(_text(case, name), "train.py")]


def _text(case: str, name: str) -> str:
    return HEAD + case.replace("NAME_LOWER", name.lower()).replace("NAME", name)


@pytest.mark.parametrize("case", SPELLINGS.values(), ids=SPELLINGS)
def test_a_name_that_no_module_has_is_found(case):
    assert codes(case, "Block") == ["CKPT208"]


@pytest.mark.parametrize("case", SPELLINGS.values(), ids=SPELLINGS)
def test_the_name_of_the_layers_is_right(case):
    assert codes(case, "Layer") == []


@pytest.mark.parametrize("case", OF_TRANSFORMERS.values(), ids=OF_TRANSFORMERS)
def test_the_layers_of_another_family(case):
    assert codes(case, "MistralDecoderLayer") == ["CKPT208"]
    assert codes(case, "LlamaDecoderLayer") == []


@pytest.mark.parametrize("case", OPEN.values(), ids=OPEN)
def test_what_is_open_is_silent(case):
    assert codes(case, "Block") == []


@pytest.mark.parametrize("case", [case for case in SPELLINGS.values() if "\nnet = Net()" in case])
@pytest.mark.parametrize(("name", "wraps"), [("Block", False), ("Layer", True)])
def test_torch_wraps_what_the_check_accepts(case, name, wraps):
    pytest.importorskip("torch")
    space: dict[str, Any] = {}
    exec(_text("\n" + case, name), space)
    assert any(isinstance(it, space["CheckpointWrapper"]) for it in space["net"].modules()) == wraps
