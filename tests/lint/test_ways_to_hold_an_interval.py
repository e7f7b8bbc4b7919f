"""Intervals that are square roots, which options hold or compute: properties, dataclasses, dicts."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
import math
IMPORTSfrom dataclasses import dataclass
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

@dataclass
class GPTConfig:
    width: int = 768
    depth: int = 24
OPTIONS
class GPT(nn.Module):
    def __init__(self, cfg: GPTConfig):
        super().__init__()
        self.cfg = cfg
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(cfg.width), nn.Linear(cfg.width, cfg.width), nn.GELU()) for _ in range(cfg.depth))
METHODS
    def forward(self, x):
        for index, block in enumerate(self.blocks):
            if CHOSEN:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return x

if __name__ == "__main__":
    model = GPT(GIVEN)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    for x, y in torch.load("d.pt"):
        model(x).sum().backward()
        opt.step()
"""
STRIDE = """
    def stride(self):
        return max(1, int(math.sqrt(self.depth)))
"""
PROPERTY = f"\n    @property{STRIDE}"


def model(
    options: str = "",
    given: str = "GPTConfig()",
    chosen: str = "self.training and index % self.cfg.stride == 0",
    methods: str = "",
    imports: str = "",
) -> str:
    """A model, the ``options`` of its configuration, what it is ``given``, and when a layer is ``chosen``."""
    parts = {"IMPORTS": imports, "OPTIONS": options, "METHODS": methods, "CHOSEN": chosen, "GIVEN": given}
    script = SCRIPT
    for name, text in parts.items():
        script = script.replace(name, text)
    return script


def of_dict(script: str) -> str:
    for name in ("width", "depth", "stride"):
        script = script.replace(f"cfg.{name}", f'cfg["{name}"]')
    return script


#: By the way: a script, what makes the square root in it, and a number instead.
WAYS = {
    "a property": (model(PROPERTY), "int(math.sqrt(self.depth))"),
    "set behind the constructor": (
        model("\n    stride: int = 0\n\n    def __post_init__(self):\n        self.stride = math.isqrt(self.depth)\n"),
        "math.isqrt(self.depth)",
    ),
    "given to the constructor": (
        model("\n    stride: int = 4\n", "GPTConfig(stride=int(24 ** 0.5))"),
        "int(24 ** 0.5)",
    ),
    "a cached property": (
        model(f"\n    @cached_property{STRIDE}", imports="from functools import cached_property\n"),
        "int(math.sqrt(self.depth))",
    ),
    "a method": (
        model(STRIDE, chosen="self.training and index % self.cfg.stride() == 0"),
        "int(math.sqrt(self.depth))",
    ),
    "a namespace": (
        model(
            given="SimpleNamespace(width=8, depth=24, stride=round(math.sqrt(24)))",
            imports="from types import SimpleNamespace\n",
        ),
        "round(math.sqrt(24))",
    ),
    "a dict": (
        of_dict(model(given='{"width": 8, "depth": 24, "stride": round(math.sqrt(24))}')),
        "round(math.sqrt(24))",
    ),
    "a property in a method": (
        model(
            PROPERTY,
            chosen="self.picks(index)",
            methods="\n    def picks(self, i):\n        return not i % self.cfg.stride\n",
        ),
        "int(math.sqrt(self.depth))",
    ),
}
HELPER = """
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)) for _ in range(4))
        self.head = nn.Linear(8, 99)

    def recompute(self, fn, *inputs):
        return checkpoint(fn, *inputs, use_reentrant=False)

    def forward(self, x):
        for block in self.blocks:
            x = self.recompute(block, x)
        return self.recompute(self.head, x)
"""


def codes(program: str) -> set[str]:
    return {found.code for found in check_source(program)}


@pytest.mark.parametrize(("script", "root"), WAYS.values(), ids=WAYS)
def test_one_layer_in_each_interval_is_noted(script, root):
    assert "CKPT408" in codes(script)


@pytest.mark.parametrize(("script", "root"), WAYS.values(), ids=WAYS)
def test_another_number_is_right(script, root):
    assert "CKPT408" not in codes(script.replace(root, "3"))


def test_what_a_helper_runs_is_the_choice_of_each_caller():
    assert "CKPT403" in codes(HELPER)
    assert "CKPT403" not in codes(HELPER.replace("return self.recompute(self.head, x)", "return self.head(x)"))


def test_a_loop_over_light_and_other_layers_is_one_choice():
    parts = "nn.ModuleList([nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)), nn.Linear(8, 8)])"
    first = HELPER.index("nn.ModuleList(")
    last = HELPER.index("\n", first)
    right = HELPER.replace("return self.recompute(self.head, x)", "return self.head(x)")
    assert "CKPT403" not in codes(right[:first] + parts + right[last:])


HELPERS = {
    "an object": (
        """
class Recompute:
    def __init__(self, reentrant=False):
        self.reentrant = reentrant

    def __call__(self, fn, *inputs):
        return checkpoint(fn, *inputs, use_reentrant=self.reentrant)
""",
        "self.run = Recompute()",
    ),
    "a method of a base": (
        """
class Base(nn.Module):
    def run(self, layer, *inputs):
        if self.training:
            return checkpoint(layer, *inputs, use_reentrant=False)
        return layer(*inputs)
""",
        "pass",
    ),
    "a function with a switch": (
        """
def run(layer, x, on=True):
    return checkpoint(layer, x, use_reentrant=False) if on else layer(x)
""",
        "self.run = run",
    ),
}
BODY = """
class Net(BASE):
    def __init__(self, on):
        super().__init__()
        MORE
        self.body = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
        self.on, self.head = on, nn.Linear(8, 99)

    def forward(self, x):
        x = self.run(self.body, x)
        return self.run(self.head, x)
"""


@pytest.mark.parametrize(("helper", "more"), HELPERS.values(), ids=HELPERS)
def test_a_helper_that_does_more_leaves_it_to_its_callers(helper, more):
    imports = "from torch import nn\nfrom torch.utils.checkpoint import checkpoint\n"
    net = BODY.replace("BASE", "Base" if "Base" in helper else "nn.Module").replace("MORE", more)
    assert "CKPT403" in codes(imports + helper + net)
    assert "CKPT403" not in codes(
        imports + helper + net.replace("return self.run(self.head, x)", "return self.head(x)")
    )
    if "on=True" in helper:
        assert "CKPT403" not in codes(imports + helper + net.replace("head, x)", "head, x, self.on)"))
