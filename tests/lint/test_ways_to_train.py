"""Trainers of transformers and trl that get their model and arguments by position, by whichever class."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
from dataclasses import dataclass
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer

class Plain(Trainer):
    pass

class Weighted(Trainer):
    def __init__(self, *args, weights=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.weights = weights

class Behind(Trainer):
    def __init__(self, weights, model, args, **kwargs):
        super().__init__(model=model, args=args, **kwargs)

class Beside(Trainer):
    def __init__(self, model, other, args=None, **kwargs):
        super().__init__(model, args, **kwargs)

settings = dict(gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False})
model = AutoModelForCausalLM.from_pretrained("gpt2")
model.gradient_checkpointing_enable({"use_reentrant": True})
{0}
"""
WAYS = {
    "Trainer": 'Trainer(model, TrainingArguments("out", **settings)).train()',
    "a class of its own": 'Plain(model, TrainingArguments("out", **settings)).train()',
    "one that hands on what it gets": 'Weighted(model, TrainingArguments("out", **settings), weights=1).train()',
    "one with other positions": 'Behind(1, model, TrainingArguments("out", **settings)).train()',
    "SFT": 'SFTTrainer(model, SFTConfig("out", **settings)).train()',
    "DPO": 'DPOTrainer(model, None, DPOConfig("out", **settings)).train()',
    "GRPO": 'GRPOTrainer(model, [len], GRPOConfig("out", **settings)).train()',
}
RIGHT = {
    "the same variant": 'settings["gradient_checkpointing_kwargs"] = {"use_reentrant": True}\n'
    'Plain(model, TrainingArguments("out", **settings)).train()',
    "arguments of something else": 'Beside(model, TrainingArguments("out", **settings)).train()',
    "another model": 'Behind(model, other, TrainingArguments("out", **settings)).train()',
}
FACTORY = """
class Factory:
    def __init__(self, stride):
        self.stride = stride

    def __call__(self, trial=None):
        made = AutoModelForCausalLM.from_pretrained("gpt2")
        made.gradient_checkpointing_enable({"use_reentrant": VARIANT})
        return made

class Smaller(Factory):
    pass

Trainer(args=TrainingArguments("out", **settings), model_init={0}).train()
"""
SELECTED = 'gradient_checkpointing_kwargs={"use_reentrant": False, "every_n_layers": 2}'
DERIVED = """\
@dataclass
class Config({0}):
    {1}
KTOTrainer("base", args=Config("out", {2})).train()
"""
SHARED = """\
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.cell = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
        self.cells = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)) for _ in range(3))

    def step(self, x):
        return checkpoint(self.cell, x, use_reentrant=True)

    def again(self, x):
        return self.step(x)

    def step_of(self, cell, x):
        return checkpoint(cell, x, use_reentrant=True)

    def numbered(self, i, x):
        return checkpoint(self.cells[i], x, use_reentrant=True)

    def forward(self, x):
        x = self.stem(x)
        {0}
        return x

def main(loader):
    net = DistributedDataParallel(Cell().cuda())
    for x in loader:
        net(x).sum().backward()
"""
REUSED = {
    "a helper": "for _ in range(4):\n            x = self.step(x)",
    "a helper's helper": "for _ in range(4):\n            x = self.again(x)",
}
NOT_REUSED = {
    "once": "x = self.step(x)",
    "each of a list": "for cell in self.cells:\n            x = self.step_of(cell, x)",
    "by number": "for i in range(3):\n            x = self.numbered(i, x)",
}


def codes(part: str) -> set[str]:
    return {found.code for found in check_source(SCRIPT.replace("{0}", part))}


@pytest.mark.parametrize("way", WAYS)
def test_its_arguments_take_the_place_of_the_models(way: str) -> None:
    assert "CKPT202" in codes(WAYS[way])


@pytest.mark.parametrize("way", RIGHT)
def test_other_arguments_do_not(way: str) -> None:
    assert "CKPT202" not in codes(RIGHT[way])


@pytest.mark.parametrize("maker", ["Factory(2)", "Smaller(2)", "Factory(2).__call__"])
@pytest.mark.parametrize(("variant", "is_found"), [("True", True), ("False", False)])
def test_an_object_makes_the_model(maker: str, variant: str, is_found: bool) -> None:
    alone = SCRIPT.partition("model = ")[0] + FACTORY.replace("{0}", maker).replace("VARIANT", variant)
    assert ("CKPT202" in {found.code for found in check_source(alone)}) is is_found


@pytest.mark.parametrize(
    ("base", "field", "is_found"),
    [
        ("KTOConfig", "task: str = ''", True),
        ("KTOConfig", "precompute_ref_log_probs: bool = True", False),
        ("SFTConfig", "task: str = ''", False),
    ],
)
def test_a_config_of_its_own_enables_again_as_trls_does(base: str, field: str, is_found: bool) -> None:
    script = DERIVED.replace("{0}", base).replace("{1}", field).replace("{2}", SELECTED)
    assert ("CKPT206" in codes(script)) is is_found


@pytest.mark.parametrize("way", REUSED)
def test_one_cell_that_runs_several_times_is_reused(way: str) -> None:
    assert "CKPT304" in codes(SHARED.replace("{0}", REUSED[way]))


@pytest.mark.parametrize("way", NOT_REUSED)
def test_cells_that_run_once_are_not(way: str) -> None:
    assert "CKPT304" not in codes(SHARED.replace("{0}", NOT_REUSED[way]))
