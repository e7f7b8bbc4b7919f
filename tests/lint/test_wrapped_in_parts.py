"""Names of parameters that a model's part wraps: asked for from the whole model."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from parts import Block

class Encoder(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.embed = nn.Linear(4, 4)
        self.blocks = nn.ModuleList([checkpoint_wrapper(Block(4)) for _ in range(depth)])
        self.middle = checkpoint_wrapper(Block(4))

class Plain(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList([Block(4) for _ in range(depth)])

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.encoder, self.plain, self.head = Encoder(), Plain(), nn.Linear(4, width)

class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net(5)

net, whole = Net(5), Whole()
"""
LOOP = """
for name, parameter in {}.named_parameters():
    if {}:
        parameter.requires_grad = False
"""
WRONG = {
    "a layer of a list": ("net", 'name.startswith("encoder.blocks.2.attn")'),
    "by its whole name": ("net", 'name == "encoder.blocks.0.attn.qkv.weight"'),
    "a single one": ("net", 'name.startswith("encoder.middle.attn")'),
    "a part of a part": ("whole", 'name.startswith("net.encoder.blocks.1.attn")'),
    "from the part": ("net.encoder", 'name.startswith("blocks.2.attn")'),
}
RIGHT = {
    "a list without wrappers": ("net", 'name.startswith("plain.blocks.2.attn")'),
    "what stands beside": ("net", 'name.startswith("encoder.embed")'),
    "a whole layer": ("net", 'name.startswith("encoder.blocks.2.")'),
    "a whole part": ("net", 'name.startswith("encoder.")'),
    "from a part without wrappers": ("net.plain", 'name.startswith("blocks.2.attn")'),
    "anywhere": ("net", '"attn" in name'),
}


@pytest.mark.parametrize(("model", "test"), WRONG.values(), ids=WRONG)
def test_names_below_wrappers_in_a_part_are_found(model: str, test: str) -> None:
    assert [finding.code for finding in check_source(HEAD + LOOP.format(model, test))] == ["CKPT131"]


@pytest.mark.parametrize(("model", "test"), RIGHT.values(), ids=RIGHT)
def test_names_of_what_no_wrapper_is_around_are_left_alone(model: str, test: str) -> None:
    assert not check_source(HEAD + LOOP.format(model, test))
