"""Parts of a library's model by a name that is computed: `getattr(resnet, f"layer{k}")`."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

NET = """
import torchvision
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = torchvision.models.MODEL
        self.heads = nn.ModuleList()

    def forward(self, x):
        LOOP
            x = checkpoint(PART, x, use_reentrant=False)
        return x
"""
RESNET = "resnet50(weights=None)"
NORMS = {
    "a counter": (RESNET, "for k in range(1, 5):", 'getattr(self.trunk, f"layer{k}")'),
    "a table": (RESNET, 'for name in ("layer1", "layer2"):', "getattr(self.trunk, name)"),
    "an option": (RESNET, "while True:", 'getattr(self.trunk, "layer1" if x.mean() > 0 else "layer2")'),
}
NONE = {
    "one with another norm": (RESNET.replace("None", "None, norm_layer=nn.Identity"), *NORMS["a counter"][1:]),
    "no such part": (RESNET, "for k in range(1, 5):", 'getattr(self.trunk, f"conv{k}")'),
    "one without": (RESNET, 'for name in ("avgpool", "fc"):', "getattr(self.trunk, name)"),
    "any part": (RESNET, "for k in self.names:", 'getattr(self.trunk, f"{k}")'),
    "a model without norms": ("alexnet()", "for k in range(1, 5):", 'getattr(self.trunk, f"layer{k}")'),
}


def _found(model: str, loop: str, part: str) -> list[str]:
    text = NET.replace("MODEL", model).replace("LOOP", loop).replace("PART", part)
    return [found.code for found in check_source(text, "train.py") if found.code == "CKPT106"]


@pytest.mark.parametrize(("model", "loop", "part"), NORMS.values(), ids=NORMS)
def test_parts_that_a_name_can_mean(model, loop, part):
    assert _found(model, loop, part) == ["CKPT106"]


@pytest.mark.parametrize(("model", "loop", "part"), NONE.values(), ids=NONE)
def test_parts_without_a_norm(model, loop, part):
    assert _found(model, loop, part) == []
