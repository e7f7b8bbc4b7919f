"""Which modules FSDP1 makes units of, whoever wraps them: a loop, `enable_wrap`, Lightning, accelerate, a Trainer."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

_NET = """
import functools
import torch
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import CustomPolicy, ModuleWrapPolicy, enable_wrap, lambda_auto_wrap_policy, wrap
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)
    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))

class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(64, 8)
    def forward(self, x):
        return self.out(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers = nn.Embedding(99, 64), nn.ModuleList([Block() for _ in range(4)])
        self.head = Head()
    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)
        return self.head(x)

"""
_LIT = """
import lightning as L
from lightning.fabric import Fabric
from lightning.pytorch.strategies import FSDPStrategy

class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()
    def training_step(self, batch, index):
        return self.net(batch).sum()

"""
_ACCELERATE = "from accelerate import Accelerator, FullyShardedDataParallelPlugin\n"
_PREPARE = "Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin({})).prepare(Net())\n"
_BY_NAME = "auto_wrap_policy='transformer_based_wrap', transformer_cls_names_to_wrap=['Block']"
_TRAINER = "from transformers import Trainer, TrainingArguments\n"
_TRAIN = "Trainer(Net(), TrainingArguments('out', fsdp={}, fsdp_config={})).train()\n"
UNITS = {
    "a lambda policy": "policy = functools.partial(lambda_auto_wrap_policy, "
    "lambda_fn=lambda m: isinstance(m, Block))\nFSDP(Net(), auto_wrap_policy=policy)\n",
    "a custom policy": "FSDP(Net(), auto_wrap_policy=CustomPolicy(lambda m: isinstance(m, Block)))\n",
    "a policy by its position": "FSDP(Net(), None, None, None, ModuleWrapPolicy({Block}))\n",
    "a set of a list": "policy = functools.partial(transformer_auto_wrap_policy, "
    "transformer_layer_cls=set([Block]))\nFSDP(Net(), auto_wrap_policy=policy)\n",
    "lightning": _LIT + "L.Trainer(strategy=FSDPStrategy(auto_wrap_policy={Block})).fit(Lit())\n",
    "fabric": _LIT + "Fabric(strategy=FSDPStrategy(auto_wrap_policy={Block})).setup(Net())\n",
    "accelerate": _ACCELERATE + _PREPARE.format("auto_wrap_policy=ModuleWrapPolicy({Block})"),
    "accelerate, by name": _ACCELERATE + _PREPARE.format(_BY_NAME),
    "a Trainer": _TRAINER
    + _TRAIN.format("'full_shard auto_wrap'", "{'version': 1, 'transformer_layer_cls_to_wrap': ['Block']}"),
    "a Trainer, told no words": _TRAINER
    + _TRAIN.format("True", "{'version': 1, 'transformer_layer_cls_to_wrap': 'Block'}"),
}
ONE_BY_ONE = {
    "each of a list": "model = Net()\nfor i, layer in enumerate(model.layers):\n    model.layers[i] = FSDP(layer)\n",
    "by index": "def build():\n    net = Net()\n    for i in range(4):\n        net.layers[i] = FSDP(net.layers[i])\n",
    "of a model that is given": "def shard(model):\n    for i, layer in enumerate(model.layers):\n"
    "        model.layers[i] = FSDP(layer.cuda(), use_orig_params=True)\n    return FSDP(model)\n",
    "by setattr": "model = Net()\nfor name, child in model.layers.named_children():\n"
    "    setattr(model.layers, name, FSDP(child))\n",
    "marked": "model = Net()\nwith enable_wrap(wrapper_cls=FSDP, use_orig_params=True):\n"
    "    for i, layer in enumerate(model.layers):\n        model.layers[i] = wrap(layer)\n",
}
OTHERS = {
    "other units": "model = Net()\nmodel.head = FSDP(model.head)\nFSDP(model, auto_wrap_policy=ModuleWrapPolicy({Head}))\n",
    "other children": "model = Net()\nfor name, child in model.named_children():\n"
    "    if isinstance(child, Head):\n        setattr(model, name, FSDP(child))\n",
    "kept after forward": "model = Net()\nfor i, layer in enumerate(model.layers):\n"
    "    model.layers[i] = FSDP(layer, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)\n",
    "open settings": "def shard(model, **settings):\n    for i, layer in enumerate(model.layers):\n"
    "        model.layers[i] = FSDP(layer, **settings)\n",
    "another class of marks": "import fairscale\nmodel = Net()\nwith enable_wrap(wrapper_cls=fairscale.nn.Other):\n"
    "    for i, layer in enumerate(model.layers):\n        model.layers[i] = wrap(layer)\n",
    "marked for whoever wraps": "model = Net()\nfor i, layer in enumerate(model.layers):\n"
    "    model.layers[i] = wrap(layer)\n",
    "marked inside a unit": "model = Net()\nfor i, layer in enumerate(model.layers):\n"
    "    model.layers[i] = wrap(layer)\nFSDP(model)\n",
    "kept, by position": "FSDP(Net(), None, ShardingStrategy.SHARD_GRAD_OP, None, ModuleWrapPolicy({Block}))\n",
    "FSDP2": "model = Net()\nfor layer in model.layers:\n    fully_shard(layer)\nfully_shard(model)\n",
    "a model beside it": "class Other(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.first, self.last = Block(), Head()\n    def forward(self, x):\n        return self.last(self.first(x))\n"
    + _LIT.replace("Net()", "Other()")
    + "L.Trainer(strategy=FSDPStrategy(auto_wrap_policy={Block})).fit(Lit())\n",
    "a function around the module": "def policy(module):\n    return isinstance(module, Block) and wanted(module)\n"
    "FSDP(Net(), auto_wrap_policy=CustomPolicy(policy))\n",
    "accelerate, FSDP2": _ACCELERATE + _PREPARE.format(f"fsdp_version=2, {_BY_NAME}"),
    "accelerate, kept": _ACCELERATE + _PREPARE.format(f"{_BY_NAME}, sharding_strategy='SHARD_GRAD_OP'"),
    "accelerate, by the launcher": _ACCELERATE + _PREPARE.format("transformer_cls_names_to_wrap=['Block']"),
    "a Trainer, FSDP2": _TRAINER
    + _TRAIN.format("'full_shard auto_wrap'", "{'version': 2, 'transformer_layer_cls_to_wrap': ['Block']}"),
    "a Trainer, kept": _TRAINER
    + _TRAIN.format("'shard_grad_op auto_wrap'", "{'version': 1, 'transformer_layer_cls_to_wrap': ['Block']}"),
}
_WRAP = "    model.layers[i] = {}\n"
_LOOP = "model = Net()\nfor i, layer in enumerate(model.layers):\n" + _WRAP
_AROUND = "checkpoint_wrapper(layer, checkpoint_impl=CheckpointImpl.REENTRANT)"
_AGAIN = "for i, layer in enumerate(model.layers):\n" + _WRAP
_PLAIN = _NET.replace("checkpoint(layer, x, use_reentrant=True)", "layer(x)")


def _codes(text: str, versions: dict[str, str] | None = None) -> list[str]:
    return [finding.code for finding in check_source(text, versions=versions)]


@pytest.mark.parametrize("wrapped", UNITS.values(), ids=UNITS)
def test_a_reentrant_checkpoint_around_a_unit_is_seen(wrapped: str) -> None:
    assert _codes(_NET + wrapped) == ["CKPT401"]
    assert _codes(_NET.replace("use_reentrant=True", "use_reentrant=False") + wrapped) == []


@pytest.mark.parametrize(
    "run",
    [
        "checkpoint(lambda y, layer=layer: layer(y), x, use_reentrant=True)",
        "checkpoint(lambda y, run=layer: run(y), x, use_reentrant=True)",
        "checkpoint(lambda run, y: run(y), layer, x, use_reentrant=True)",
        "checkpoint(functools.partial(layer), x, use_reentrant=True)",
    ],
)
def test_a_function_that_calls_a_unit_alone_is_around_it(run: str) -> None:
    wrapped = "FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}))\n"
    net = _NET.replace("checkpoint(layer, x, use_reentrant=True)", run)
    assert _codes(net + wrapped) == ["CKPT401"]
    assert _codes(net.replace("use_reentrant=True", "use_reentrant=False") + wrapped) == []
    assert _codes(net + wrapped.replace("Block", "Head")) == []


@pytest.mark.parametrize("wrapped", ONE_BY_ONE.values(), ids=ONE_BY_ONE)
def test_layers_that_a_loop_wraps_are_left_alone(wrapped: str) -> None:
    assert _codes(_NET + wrapped) == []


@pytest.mark.parametrize("wrapped", OTHERS.values(), ids=OTHERS)
def test_what_is_no_such_unit_is_not(wrapped: str) -> None:
    assert _codes(_NET + wrapped) == []


def test_a_wrapper_is_around_a_unit_or_in_it_by_the_order() -> None:
    assert _codes(_PLAIN + _LOOP.format("FSDP(layer)") + _AGAIN.format(_AROUND)) == ["CKPT401"]
    assert _codes(_PLAIN + _LOOP.format(_AROUND) + _AGAIN.format("FSDP(layer)")) == []
    assert _codes(_PLAIN + _LOOP.format(f"FSDP({_AROUND})")) == []


def test_a_trainer_takes_fsdp2_where_nothing_is_said_since_5_0() -> None:
    told = _TRAINER + _TRAIN.format("'full_shard auto_wrap'", "{'transformer_layer_cls_to_wrap': 'Block'}")
    assert _codes(_NET + told, {"transformers": "<5.0"}) == ["CKPT401"]
    assert _codes(_NET + told, {"transformers": ">=5.0"}) == []
    assert _codes(_NET + told) == []
