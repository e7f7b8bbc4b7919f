"""Generators of the program: a loop over a call of one gives what its body yields, data or what needs gradients."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential
from torch.utils.data import DataLoader, TensorDataset

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.GELU())
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(checkpoint_sequential(self.features, 2, x, use_reentrant=True))

stem = nn.Linear(8, 8)
loader = DataLoader(TensorDataset(torch.randn(8, 8), torch.zeros(8)), 2)
MAKER

net = Net()
for x, y in BATCHES:
    nn.functional.cross_entropy(net(x), y).backward()
"""
DATA = {
    "made": "def made(n):\n    for _ in range(n):\n        yield torch.randn(2, 8), torch.randint(3, (2,))",
    "moved": "def made(n):\n    for x, y in loader:\n        yield x.to('cuda', non_blocking=True), y.cuda()",
    "handed on": "def made(n):\n    while True:\n        yield from loader",
    "chosen": "def made(n):\n    x = torch.rand(2, 8)\n    yield (x.cuda() if n else x), torch.zeros(2)",
}
TRAINED = {
    "asks": "def made(n):\n    yield torch.randn(2, 8, requires_grad=True), torch.zeros(2)",
    "a module": "def made(n):\n    yield stem(torch.randn(2, 8)), torch.zeros(2)",
    "one of two": "def made(n):\n    yield torch.rand(2, 8), torch.zeros(2)\n    yield stem(torch.rand(2, 8)), torch.ones(2)",
    "later": "def made(n):\n    x = torch.rand(2, 8)\n    if n:\n        x.requires_grad_()\n    yield x, torch.zeros(2)",
}


def _found(maker: str, batches: str) -> list[str]:
    text = SCRIPT.replace("MAKER", maker).replace("BATCHES", batches)
    return [found.code for found in check_source(text, "train.py") if found.code == "CKPT104"]


@pytest.mark.parametrize("maker", DATA.values(), ids=DATA)
def test_data_that_a_generator_yields_needs_no_gradient(maker):
    assert _found(maker, "made(3)") == ["CKPT104"]


def test_a_loop_may_count_and_show_them():
    assert _found(DATA["made"], "iter(made(3))") == ["CKPT104"]
    assert _found(DATA["made"], "list(made(3))") == ["CKPT104"]


@pytest.mark.parametrize("maker", TRAINED.values(), ids=TRAINED)
def test_what_may_need_a_gradient_stays_open(maker):
    assert _found(maker, "made(3)") == []


ITERATED = """class made:
    def __init__(self, n):
        self.n, self.stem = n, nn.Linear(8, 8)

    def __iter__(self):
        for _ in range(self.n):
            yield GIVEN"""


def test_an_object_that_iterates_by_a_generator():
    made = ITERATED.replace("GIVEN", "torch.randn(2, 8), torch.zeros(2)")
    assert _found(made, "made(3)") == ["CKPT104"]
    assert _found(made, "list(made(3))") == ["CKPT104"]
    assert _found(ITERATED.replace("GIVEN", "self.stem(torch.randn(2, 8)), torch.zeros(2)"), "made(3)") == []


UNPACKED = SCRIPT.replace(
    "MAKER",
    """
class Engine:
    def __init__(self, net):
        self.net = net

    def step(self, x, y, weight=None):
        nn.functional.cross_entropy(self.net(x), y).backward()
""",
).split("net = Net()")[0]


@pytest.mark.parametrize(
    ("loop", "found"),
    [
        ("for batch in loader:\n    engine.step(*batch)", ["CKPT104"]),
        ("for batch in loader:\n    engine.step(*batch, weight=None)", ["CKPT104"]),
        ("for x, y in loader:\n    engine.step(-x, y)", ["CKPT104"]),
        ("for x, y in loader:\n    engine.step(-stem(x), y)", []),
        ("for x, y in loader:\n    engine.step(stem(x), y)", []),
        ("for x, *rest in loader:\n    engine.step(stem(x), *rest)", []),
        ("for batch in trained:\n    engine.step(*batch)", []),
        ("for batch in loader:\n    engine.step(*[stem(part) for part in batch])", []),
    ],
)
def test_a_batch_may_be_taken_apart_by_a_star(loop, found):
    made = "trained = [(stem(torch.rand(2, 8)), torch.zeros(2))]\nengine = Engine(Net())\n"
    text = UNPACKED + made + loop + "\n"
    assert [it.code for it in check_source(text, "train.py") if it.code == "CKPT104"] == found
