"""Blocks that Lightning and Fabric checkpoint, as their ``FSDPStrategy`` asks for."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.explain.run import explain

SCRIPT = """
import torch
from torch import nn
import lightning as L
from lightning.fabric import Fabric
from lightning.fabric.strategies import FSDPStrategy as OfFabric
from lightning.pytorch.strategies import FSDPStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(8), nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(self.norm(x))

class Plain(nn.Module):
    def forward(self, x):
        return torch.relu(x)

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*[nn.Sequential(Block(), Plain()) for _ in range(3)])

    def training_step(self, batch, index):
        return self.blocks(batch).sum()
"""
FITS = "strategy = {}\nL.Trainer(strategy=strategy, devices=2).fit(Net(), loader)\n"
SETS_UP = "fabric = Fabric(strategy={}, devices=2)\nmodel = fabric.setup(Net())\n"


def _found(launch: str, strategy: str) -> list[str]:
    return [found.code for found in check_source(SCRIPT + launch.format(strategy), "train.py")]


@pytest.mark.parametrize(
    ("launch", "strategy"),
    [
        (FITS, "FSDPStrategy(activation_checkpointing_policy={Block})"),
        (FITS, "FSDPStrategy(auto_wrap_policy={Plain}, activation_checkpointing_policy={Plain, Block})"),
        (FITS, "FSDPStrategy(activation_checkpointing_policy=ModuleWrapPolicy({Block}))"),
        (FITS, "FSDPStrategy(activation_checkpointing=Block)"),
        (FITS, "FSDPStrategy(activation_checkpointing=[Block])"),
        (SETS_UP, "OfFabric(activation_checkpointing_policy={Block})"),
    ],
)
def test_running_statistics_in_a_block_that_the_launcher_checkpoints(launch, strategy):
    assert _found(launch, strategy) == ["CKPT106"]


@pytest.mark.parametrize(
    "strategy",
    [
        "FSDPStrategy(auto_wrap_policy={Block})",
        "FSDPStrategy(activation_checkpointing_policy={Plain})",
        "FSDPStrategy(activation_checkpointing_policy=None)",
        # Both of these raise.
        "FSDPStrategy(activation_checkpointing_policy=[Block])",
        "FSDPStrategy(activation_checkpointing=[Block], activation_checkpointing_policy={Block})",
        # Somebody decides elsewhere.
        "FSDPStrategy(activation_checkpointing_policy={Block}) if torch.cuda.device_count() > 1 else 'auto'",
    ],
)
def test_strategies_that_checkpoint_no_such_block(strategy):
    assert _found(FITS, strategy) == []


def test_a_policy_that_nothing_is_trained_with():
    assert (
        _found(
            "strategy = {}\nL.Trainer(devices=2).fit(Net(), loader)\n",
            "FSDPStrategy(activation_checkpointing_policy={Block})",
        )
        == []
    )


LANGUAGE_MODEL = """
import torch
from lightning.fabric import Fabric
from lightning.fabric.strategies import FSDPStrategy
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

layers = {LlamaDecoderLayer}
fabric = Fabric(devices=4, strategy=FSDPStrategy(auto_wrap_policy=layers, activation_checkpointing_policy=layers))
model = AutoModelForCausalLM.from_pretrained("base")
SETTING
model.train()
model = fabric.setup(model)
for batch in loader:
    fabric.backward(model(**batch).loss)
"""


@pytest.mark.parametrize(("setting", "found"), [("", ["CKPT111"]), ("model.config.use_cache = False", [])])
def test_a_cache_in_layers_that_fabric_checkpoints(setting, found):
    text = LANGUAGE_MODEL.replace("SETTING", setting)
    assert [finding.code for finding in check_source(text, "train.py")] == found


def test_explain_names_the_strategy():
    text = SCRIPT + FITS.format("FSDPStrategy(activation_checkpointing_policy={Block})")
    shown = str(explain(text, "train.py", {}))
    assert "wraps modules inside the model that the launcher gets" in shown
