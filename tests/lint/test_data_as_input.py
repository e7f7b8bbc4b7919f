"""Whether the linter knows data that goes into a reentrant checkpoint from tensors that something gave a gradient."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import einops
import torch
import torch.nn as nn
from accelerate import Accelerator
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader
from data import codes, flag, images, loader, make, model, helper, train_data

net, head, stem = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 1), nn.Linear(8, 8)
{before}
{loop}
    {body}
    head(checkpoint(net, {given}, use_reentrant=True)).mean().backward()
"""
BATCHES, PAIRS = "for batch in loader:", "for x, y in loader:"
NOISES = "kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)"
COLLATE = "def collate(rows):\n    return torch.stack(rows).requires_grad_()\nbatches = DataLoader(rows, 8, collate_fn=collate)"

#: What stands before the loop, the loop, its body, and the input of the checkpoint: it may need a gradient.
OPEN = [
    ("", PAIRS, "x = x.cuda(); x.requires_grad = True", "x"),
    ("", PAIRS, "x = 0.5 * x + 0.5 * head(x).detach(); x.requires_grad_(True)", "x"),
    ("", PAIRS, "x = x + stem(x) if flag else x * 0.5", "x"),
    ("", PAIRS, "z = x * 2; z[:, 0] = head(x)[:, 0]", "z"),
    ("", PAIRS, "z = x.clone(); z[:, 0] = head(x)[:, 0]", "z"),
    ("", PAIRS, "x.add_(stem(x))", "x"),
    ("", PAIRS, "z = torch.zeros(4, 8); rows = z[1:]; rows[0] = stem.weight[0]", "z"),
    ("", PAIRS, "z = torch.zeros(4, 8); torch.add(stem.weight, 1, out=z)", "z"),
    ("", PAIRS, "helper(x)", "x"),
    ("", PAIRS, "x = x.mul(stem.weight)", "x"),
    ("kept = torch.cumprod(1 - stem.weight, 0)", PAIRS, "x = kept[y].sqrt() * x", "x"),
    ("kept = nn.Parameter(torch.ones(10))", PAIRS, "x = kept.gather(0, y).sqrt() * x", "x"),
    ("", BATCHES, "batch['x'].requires_grad_(True)", "batch['x'].cuda()"),
    ("", BATCHES, "positions = batch['x']; positions.requires_grad_(True)", "batch['x']"),
    ("", BATCHES, "[value.requires_grad_() for value in batch.values()]", "batch['x']"),
    ("", BATCHES, "batch['x'] = stem(batch['x'])", "batch['x']"),
    ("", BATCHES, "batch.update(x=stem(batch['ids']))", "batch['x']"),
    ("", BATCHES, "model(batch)", "batch['x']"),
    ("", BATCHES, "batch.x.requires_grad_()", "batch.x"),
    ("", "for part in torch.chunk(stem(images), 4):", "pass", "part"),
    ("", "for feature in make(images):", "pass", "feature"),
    ("", "for prompt in nn.ParameterList([nn.Parameter(images)]):", "pass", "prompt"),
    ("torch.optim.Adam([{'params': codes}])", "for code, image in zip(codes, images):", "pass", "code"),
    (COLLATE, "for batch in batches:", "pass", "batch"),
]
#: The same, where it needs none.
DATA = [
    ("", PAIRS, "x[:, 0] = x[:, 1] * 2", "x"),
    ("", PAIRS, "x = x.cuda(); x.requires_grad_(False)", "x"),
    ("", PAIRS, "x = x * 2 if flag else x + 1", "x"),
    ("", PAIRS, "x = x.float().div(255)", "x"),
    (NOISES, PAIRS, "a = kept[y][:, None]; x = a.sqrt() * x + (1 - a).sqrt() * torch.randn_like(x)", "x"),
    (NOISES, PAIRS, "x = kept.gather(0, y)[:, None].rsqrt() * x", "x"),
    ("", PAIRS, "x = einops.rearrange(x, 'a b -> b a')", "x"),
    ("", PAIRS, "y[0] = stem(x)[0, 0]", "x"),
    ("", BATCHES, "batch['y'] = stem(batch['z'])", "batch['x']"),
    ("", BATCHES, "batch['x'] = batch['x'].cuda(); print(batch)", "batch['x']"),
    ("", BATCHES, "images = batch.images", "images"),
    ("", "for step, batch in enumerate(train_data):", "pass", "batch['x']"),
    ("first, second = make()\ntrain_dl = first", "for batch in train_dl:", "pass", "batch['x']"),
    ("iterator = iter(loader)", "while True:", "x, y = next(iterator)", "x"),
    ("loader = Accelerator().prepare(loader)", BATCHES, "pass", "batch"),
]


def _codes(case: tuple[str, str, str, str]) -> list[str]:
    before, loop, body, given = case
    text = SCRIPT.format(before=before, loop=loop, body=body, given=given)
    return [finding.code for finding in check_source(text, "train.py")]


@pytest.mark.parametrize("case", OPEN, ids=[f"{loop} {body} {given}" for _, loop, body, given in OPEN])
def test_what_may_need_a_gradient_is_not_reported(case):
    assert _codes(case) == []


@pytest.mark.parametrize("case", DATA, ids=[f"{loop} {body} {given}" for _, loop, body, given in DATA])
def test_data_is_reported(case):
    assert _codes(case) == ["CKPT104"]


MODULE = """\
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.extra = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        {body}
        return checkpoint(self.block, x, use_reentrant=True)

net = Net()
{before}
for x in DataLoader(rows):
    net(x).mean().backward()
"""


@pytest.mark.parametrize(
    ("body", "before", "expected"),
    [
        ("pass", "", ["CKPT104"]),
        ("x.requires_grad_(True)", "", []),
        ("x.requires_grad = True", "", []),
        ("if self.training and not x.requires_grad: x.requires_grad_(True)", "", []),
        ("inputs = x; inputs.requires_grad_(True)", "", []),
        ("[part.requires_grad_() for part in [x]]", "", []),
        ("x[:, 0] = self.extra", "", []),
        ("pass", "net.register_forward_pre_hook(lambda module, given: given[0].requires_grad_())", []),
        ("pass", "from utils import freeze; freeze(net)", []),
    ],
)
def test_an_input_that_forward_itself_switches_on_is_not_reported(body, before, expected):
    found = check_source(MODULE.format(body=body, before=before), "train.py")
    assert [finding.code for finding in found] == expected


LIGHTNING = """\
import lightning as L
import torch.nn as nn
from lightning.pytorch.callbacks import BaseFinetuning
from torch.utils.checkpoint import checkpoint

class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(8, 8), nn.Linear(8, 1)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        {built}

    def forward(self, x):
        return self.head(checkpoint(self.block, x, use_reentrant=True))

    def shared(self, batch):
        return nn.functional.mse_loss(self(batch["x"]), batch["y"])

    def training_step(self, batch, index):
        return self.shared(batch)

    def validation_step(self, batch, index):
        return self.shared(batch)
{hook}
"""
TRANSFER = "    def on_after_batch_transfer(self, batch, index):\n        return {'x': self.stem(batch['x'])}"
START = "    def on_train_batch_start(self, batch, index):\n        batch['x'].requires_grad_()"
SUBCLASS = """
class Embedded(Model):
    def training_step(self, batch, index):
        return super().training_step({"x": self.stem(batch["x"]), "y": batch["y"]}, index)
"""


@pytest.mark.parametrize(
    ("built", "hook", "expected"),
    [
        ("pass", "", ["CKPT104"]),
        ("pass", TRANSFER, []),
        ("pass", START, []),
        ("pass", SUBCLASS, []),
        ("BaseFinetuning.freeze(self.block)", "", []),
        ("BaseFinetuning.freeze(self.stem)", "", ["CKPT104"]),
    ],
)
def test_batches_of_lightning_steps_are_data(built, hook, expected):
    found = check_source(LIGHTNING.format(built=built, hook=hook), "model.py")
    assert [finding.code for finding in found] == expected


TESTS = """\
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

def test_shape():
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    assert checkpoint(net, torch.randn(2, 8), use_reentrant=True).shape == (2, 8)

def test_gradient():
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    checkpoint(net, torch.randn(2, 8{}), use_reentrant=True).sum().backward()
"""


@pytest.mark.parametrize(("option", "expected"), [(", requires_grad=True", []), ("", [11])])
def test_a_function_without_a_backward_pass_trains_nothing(option, expected):
    found = check_source(TESTS.format(option), "test_net.py")
    assert [finding.span.line for finding in found] == expected


GUARDED = """\
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Stem(nn.Module):
    def __init__(self, with_cp=False):
        super().__init__()
        self.with_cp, self.conv, self.norm = with_cp, nn.Conv2d({channels}, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x):
        def run(x):
            return self.norm(self.conv(x))
        return checkpoint(run, x{variant}) if self.with_cp and x.requires_grad else run(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = Stem(with_cp=True)

    def forward(self, x):
        return self.stem({given})
{training}
"""
LOOP = "def train(loader):\n    net = Net()\n    for images, labels in loader:\n        net(images.cuda()).mean().backward()"


@pytest.mark.parametrize(
    ("channels", "variant", "given", "training", "expected"),
    [
        # What a model gets may come from another one: that the call lacks the argument is a mistake all the same.
        (8, "", "x", "", ["CKPT101"]),
        (3, "", "x", "", ["CKPT101"]),
        (8, "", "x[0]", "", ["CKPT101"]),
        (8, ", use_reentrant='False'", "x", "", ["CKPT133"]),
        (8, "", "x", LOOP, []),
        # What a region does when it runs again is none where only pictures come.
        (8, ", use_reentrant=False", "x", "", []),
        (3, ", use_reentrant=False", "x", "", []),
    ],
)
def test_a_guard_that_asks_for_a_gradient_hides_no_mistake_of_the_call(channels, variant, given, training, expected):
    text = GUARDED.format(channels=channels, variant=variant, given=given, training=training)
    assert [finding.code for finding in check_source(text, "net.py")] == expected


def test_blocks_that_call_the_one_below_twice_are_followed_once():
    """Each level doubles the ways that lead to the checkpoint: sixteen would take hours one by one."""
    head = "import torch.nn as nn\nfrom torch.utils.checkpoint import checkpoint\n"
    lowest = (
        "class A0(nn.Module):\n    def __init__(self):\n        self.c = nn.Conv2d(8, 8, 3)\n    def forward(self, x):\n"
        "        return checkpoint(self.c, x, use_reentrant=False) if x.requires_grad else self.c(x)\n"
    )
    levels = (
        f"class A{n}(nn.Module):\n    def __init__(self):\n        self.a, self.b = A{n - 1}(), A{n - 1}()\n"
        "    def forward(self, x):\n        return self.a(x) + self.b(x)\n"
        for n in range(1, 17)
    )
    loop = "def train(loader):\n    net = A16()\n    for images in loader:\n        net(images).mean().backward()\n"
    assert check_source("".join((head, lowest, *levels, loop)), "train.py") == []
