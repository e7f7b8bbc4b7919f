"""Names of modules that attributes of a class, or of its objects, hold: `name in self.LAYERS`."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

CHOSEN = ("blocks.1.mlp", "blocks.3.mlp")

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(d), nn.Linear(d, d)

    def forward(self, x):
        return x + self.mlp(self.norm(x))

class Encoder(nn.Module):
    def __init__(self, d=16, depth=4):
        super().__init__()
        BLOCKS

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

class Watch:
    layers = TEXTS

    def __init__(self, net, seen):
        self.names = NAMES
        for name, module in net.named_modules():
            if name in HELD:
                module.register_forward_hook(seen.append)

Watch(Encoder(), [])
"""
LIST = "self.blocks = nn.ModuleList([checkpoint_wrapper(Block(d)) for _ in range(depth)])"
SEQUENTIAL = "self.blocks = nn.Sequential(*[checkpoint_wrapper(Block(d)) for _ in range(depth)])"
TEXTS = '("blocks.1.mlp", "blocks.3.mlp")'


def _codes(held: str, texts: str = "()", names: str = "()", blocks: str = LIST, more: str = "") -> list[str]:
    text = SCRIPT.replace("HELD", held).replace("TEXTS", texts).replace("NAMES", names).replace("BLOCKS", blocks)
    return [finding.code for finding in check_source(text + more, "watch.py")]


@pytest.mark.parametrize("held", ["self.layers", "Watch.layers", "type(self).layers", "self.__class__.layers"])
@pytest.mark.parametrize("blocks", [LIST, SEQUENTIAL])
def test_names_that_a_class_holds(held: str, blocks: str) -> None:
    assert _codes(held, texts=TEXTS, blocks=blocks) == ["CKPT131"]


@pytest.mark.parametrize("names", [TEXTS, "CHOSEN", 'set(["blocks.2.norm"])'])
def test_names_that_an_object_holds(names: str) -> None:
    assert _codes("self.names", names=names) == ["CKPT131"]


@pytest.mark.parametrize("texts", ['("blocks.1", "norm")', '("blocks.1._checkpoint_wrapped_module.mlp",)', "load()"])
def test_names_that_match(texts: str) -> None:
    assert _codes("self.layers", texts=texts) == []
    assert _codes("self.names", names=texts) == []


@pytest.mark.parametrize(
    "more",
    [
        '\nclass Other(Watch):\n    layers = ("blocks.1",)\n',
        '\nWatch.layers = ("blocks.1",)\n',
        '\ndef widen(watch):\n    watch.layers.append("blocks.1")\n',
    ],
)
def test_names_that_something_else_changes(more: str) -> None:
    assert _codes("self.layers", texts=TEXTS, more=more) == []
