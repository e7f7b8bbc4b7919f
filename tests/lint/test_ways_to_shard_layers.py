"""Layers that are sharded before they go into wrappers, by loops over the same list, in a model that is compiled."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import fully_shard

def shard(module):
    return fully_shard(module)

def smaller(module):
    return checkpoint_wrapper(module)

def faster(module):
    return torch.compile(module)

"""
SHARD = {
    "list": "for block in model.layers:\n        fully_shard(block)",
    "values": "for block in model.layers.values():\n        fully_shard(block)",
    "items": "for name, block in model.layers.items():\n        fully_shard(block, mesh=mesh)",
    "children": "for block in model.layers.children():\n        fully_shard(block)",
    "numbers": "for i in range(len(model.layers)):\n        fully_shard(model.layers[i])",
}
WRAP = {
    "enumerate": "for i, block in enumerate(model.layers):\n        model.layers[i] = checkpoint_wrapper(block)",
    "items": "for name, block in model.layers.items():\n        model.layers[name] = checkpoint_wrapper(block)",
    "children": (
        "for name, block in model.layers.named_children():\n"
        "        model.layers.register_module(name, checkpoint_wrapper(block))"
    ),
}
STEPS = """
STEPS = [{0}]

def parallelize(model):
    for i, block in enumerate(model.layers):
        for step in STEPS:
            block = step(block)
        model.layers[i] = block
    return model
"""
GIVEN = """
def parallelize(model):
    for i, block in enumerate(model.layers):
        block = fully_shard(block)
        model.layers[i] = {0}
    return torch.compile(model)
"""
OWN = """
class Block(torch.nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.lin, self.norm = torch.nn.Linear(dim, dim), torch.nn.RMSNorm(dim)

    def forward(self, x):
        return x + self.lin(self.norm(x)).relu()

class Decoder(torch.nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.blocks = torch.nn.ModuleDict({str(i): Block() for i in range(depth)})

    def forward(self, x):
        for block in self.blocks.values():
            x = block(x)
        return x

def apply_fsdp(model):
    for block in model.blocks.values():
        fully_shard(block)

def apply_ac(model):
    for key, block in model.blocks.items():
        model.blocks[key] = checkpoint_wrapper(block)

def apply_compile(model):
    for key, block in model.blocks.items():
        model.blocks[key] = torch.compile(block, fullgraph=True)

model = Decoder()
for step in ({0}):
    step(model)
"""

BY_NAME = """
class Block(torch.nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.lin, self.norm = torch.nn.Linear(dim, dim), torch.nn.RMSNorm(dim)

    def forward(self, x):
        return x + self.lin(self.norm(x)).relu()

class Unet(torch.nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.down, self.mid, self.up, self.stem = Block(d), Block(d), Block(d), Block(d)

    def forward(self, x):
        return self.up(self.mid(self.down(x)))

net = Unet()
for name in ({0}):
    fully_shard(getattr(net, name))
for name in ("down", "mid", "up"):
    setattr(net, name, checkpoint_wrapper(getattr(net, name)))
net = torch.compile(net)
"""


def script(first, second, last="return torch.compile(model)"):
    return HEAD + f"def parallelize(model, mesh):\n    {first}\n    {second}\n    {last}\n"


def with_steps(steps):
    return HEAD + OWN.replace("{0}", steps)


def codes(text):
    return {finding.code for finding in check_source(text)}


@pytest.mark.parametrize("wrap", WRAP.values(), ids=WRAP)
@pytest.mark.parametrize("shard", SHARD.values(), ids=SHARD)
def test_only_the_wrong_order_is_found(shard, wrap):
    assert codes(script(shard, wrap)) == {"CKPT406"}
    assert codes(script(wrap, shard)) == set()
    assert codes(script(shard, wrap, "return model")) == set()
    assert codes(script(shard.replace("layers", "tower"), wrap)) == set()


def test_steps_in_a_list_run_in_their_order():
    assert codes(HEAD + STEPS.format("shard, smaller, faster")) == {"CKPT406"}
    assert codes(HEAD + STEPS.format("smaller, faster, shard")) == set()


def test_what_the_sharding_gives_is_the_block():
    assert codes(HEAD + GIVEN.format("checkpoint_wrapper(block)")) == {"CKPT406"}
    assert codes(HEAD + GIVEN.format("block")) == set()


@pytest.mark.parametrize(("names", "is_found"), [('"down", "mid", "up"', True), ('"stem",', False)])
def test_parts_by_their_names(names, is_found):
    text = HEAD + BY_NAME.replace("{0}", names)
    assert ("CKPT406" in codes(text)) is is_found


def test_each_wrapper_in_a_dict_is_compiled():
    assert codes(with_steps("apply_fsdp, apply_ac, apply_compile")) == {"CKPT406"}
    assert codes(with_steps("apply_ac, apply_compile, apply_fsdp")) == set()
    assert codes(with_steps("apply_fsdp, apply_compile, apply_ac")) == set()
