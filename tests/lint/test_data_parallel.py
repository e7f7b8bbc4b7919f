"""Who wraps a model of the program in DDP, and whether that looks for unused parameters: Lightning, a Trainer."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

_NET = """
import torch.nn as nn
import pytorch_lightning as pl
from torch.utils.checkpoint import checkpoint
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)
    def forward(self, x):
        return x + self.down(self.up(x).relu())

class Net(BASE):
    def __init__(self, config=None):
        super().__init__()
        self.stem, self.blocks = nn.Linear(8, 8), nn.ModuleList([Block() for _ in range(4)])
    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=REENTRANT)
        return x
    def training_step(self, batch, index):
        return self(batch).mean()

"""
_PLUGIN = "from pytorch_lightning.plugins import DDPPlugin\n"
_FIT = "pl.Trainer(gpus=2, {}).fit(Net())\n"
_TRAIN = "Trainer(Net(), TrainingArguments('out', {})).train()\n"
LIGHTNING = {
    "a plugin": _PLUGIN + _FIT.format("plugins=DDPPlugin(find_unused_parameters=True)"),
    "a list of plugins": _PLUGIN + _FIT.format("plugins=[DDPPlugin(find_unused_parameters=True)]"),
    "a plugin as the strategy": _PLUGIN + _FIT.format("strategy=DDPPlugin(find_unused_parameters=True)"),
    "spawning": "from pytorch_lightning.strategies import DDPSpawnStrategy\n"
    + _FIT.format("strategy=DDPSpawnStrategy(find_unused_parameters=True)"),
    "by a parser": _PLUGIN
    + "def main(args):\n    plugin = DDPPlugin(find_unused_parameters=True)\n"
    + "    pl.Trainer.from_argparse_args(args, plugins=plugin).fit(Net())\n",
}
TRAINER = {
    "what it is told": _TRAIN.format("ddp_find_unused_parameters=True"),
    "its default for modules": _TRAIN.format("ddp_broadcast_buffers=False"),
    "a field of a class": "class Arguments(TrainingArguments):\n    ddp_find_unused_parameters: bool = True\n"
    "Trainer(Net(), Arguments('out', ddp_bucket_cap_mb=25)).train()\n",
    "a write": "args = TrainingArguments('out', ddp_backend='nccl', ddp_bucket_cap_mb=25)\n"
    "args.ddp_find_unused_parameters = True\nTrainer(model=Net(), args=args).train()\n",
}
RIGHT = {
    "told not to": _TRAIN.format("ddp_find_unused_parameters=False"),
    "a static graph": _TRAIN.format("ddp_find_unused_parameters=True, ddp_static_graph=True"),
    "sharded": _TRAIN.format("ddp_broadcast_buffers=False, fsdp='full_shard auto_wrap'"),
    "nothing of DDP": _TRAIN.format("ddp_timeout=3600"),
    "a plugin told not to": _PLUGIN + _FIT.format("plugins=DDPPlugin(find_unused_parameters=False)"),
}


def _codes(script: str, base: str, reentrant: bool = True) -> set[str]:
    text = _NET.replace("BASE", base).replace("REENTRANT", str(reentrant)) + script
    return {finding.code for finding in check_source(text, "train.py")}


@pytest.mark.parametrize("script", LIGHTNING.values(), ids=LIGHTNING)
def test_lightning(script):
    assert _codes(script, "pl.LightningModule") == {"CKPT304"}
    assert _codes(script, "pl.LightningModule", reentrant=False) == set()


@pytest.mark.parametrize("script", TRAINER.values(), ids=TRAINER)
def test_a_trainer(script):
    assert _codes(script, "nn.Module") == {"CKPT304"}
    assert _codes(script, "nn.Module", reentrant=False) == set()


@pytest.mark.parametrize("script", RIGHT.values(), ids=RIGHT)
def test_what_looks_for_nothing(script):
    assert _codes(script, "pl.LightningModule" if "pl." in script else "nn.Module") == set()


def test_models_of_transformers_have_another_default_while_their_switch_is_on():
    """Executed by the evidence of CKPT304: a model that checkpoints without the switch looks for unused parameters."""
    told = "ddp_broadcast_buffers=False, gradient_checkpointing=True"
    assert _codes(_TRAIN.format(told), "PreTrainedModel") == set()
    assert (
        _codes("Net.gradient_checkpointing = True\n" + TRAINER["its default for modules"], "PreTrainedModel") == set()
    )
    assert _codes(TRAINER["its default for modules"], "PreTrainedModel") == {"CKPT304"}
    assert _codes(TRAINER["what it is told"], "PreTrainedModel") == {"CKPT304"}


MADE = {
    "a lambda": "model_init=lambda: Net()",
    "a function": "model_init=make",
    "with a trial": "model_init=make_for",
    "a partial": "model_init=functools.partial(make_for, None)",
    "beside no model": "model=None, model_init=make",
}


@pytest.mark.parametrize("given", MADE.values(), ids=MADE)
def test_a_trainer_makes_its_model(given):
    head = "import functools\ndef make():\n    return Net()\ndef make_for(trial):\n    return Net()\n"
    build = (
        "args = TrainingArguments('out', ddp_find_unused_parameters={})\nTrainer(" + given + ", args=args).train()\n"
    )
    assert _codes(head + build.format(True), "nn.Module") == {"CKPT304"}
    assert _codes(head + build.format(False), "nn.Module") == set()


def test_a_class_derived_from_ddp_wraps_like_it():
    head = "from torch.nn.parallel import DistributedDataParallel as DDP\nclass Wrapped(DDP):\n"
    method = "    def __getattr__(self, name):\n        return getattr(super().__getattr__('module'), name)\n"
    other = "    def __init__(self, net, looks):\n        super().__init__(net, find_unused_parameters=False)\n"
    build = "model = Wrapped(Net(), find_unused_parameters={})\n"
    assert _codes(head + method + build.format(True), "nn.Module") == {"CKPT304"}
    assert _codes(head + method + build.format(False), "nn.Module") == set()
    assert _codes(head + other + "model = Wrapped(Net(), True)\n", "nn.Module") == set()
