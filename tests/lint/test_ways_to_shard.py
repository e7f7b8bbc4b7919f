"""Models that are one unit of FSDP1, whoever makes it, and blocks that checkpoint themselves in it."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

BLOCK = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(d, 4 * d), nn.Linear(4 * d, d), nn.LayerNorm(d)

    def inner(self, x):
        return self.down(torch.relu(self.up(self.norm(x))))

    def forward(self, x):
        return x + CHECKPOINT

"""
CHECKPOINTS = {
    "a method": "checkpoint(self.inner, x, use_reentrant=True)",
    "a lambda": "checkpoint(lambda y: self.down(self.up(self.norm(y))), x, use_reentrant=True)",
}
NET = """\
class Net(nn.Module):
    def __init__(self, depth=4):
        super().__init__()
        self.stem = nn.Linear(8, 8)
        {0}

    def forward(self, x):
        x = self.stem(x)
        {1}

net = FSDP(Net())
"""
SEVERAL = {
    "a loop": (
        "self.blocks = nn.ModuleList([Block() for _ in range(depth)])",
        "for block in self.blocks:\n            x = block(x)\n        return x",
    ),
    "Sequential": ("self.blocks = nn.Sequential(*(Block() for _ in range(depth)))", "return self.blocks(x)"),
    "two in Sequential": ("self.blocks = nn.Sequential(Block(), nn.GELU(), Block())", "return self.blocks(x)"),
    "two by name": ("self.a, self.b = Block(), Block()", "return self.b(self.a(x))"),
    "one that runs twice": ("self.a = Block()", "x = self.a(x)\n        return self.a(x)"),
    "in training": (
        "self.a, self.b = Block(), Block()",
        "if self.training:\n            return self.b(self.a(x))\n        return x",
    ),
}
ONE = {
    "one": ("self.a = Block()", "return self.a(x)"),
    "one in Sequential": ("self.blocks = nn.Sequential(nn.GELU(), Block())", "return self.blocks(x)"),
    "a teacher": (
        "self.a, self.teacher = Block(), Block()",
        "with torch.no_grad():\n            target = self.teacher(x)\n        return self.a(x) - target",
    ),
    "a second one under a flag": (
        "self.a, self.b = Block(), Block()",
        "x = self.a(x)\n        return self.b(x) if x.shape[0] > self.limit else x",
    ),
}
MADE = {
    "Sequential itself": "net = FSDP(nn.Sequential(nn.Linear(8, 8), Block(), Block()))\n",
    "a list that grows": "def make(depth):\n    layers = [nn.Linear(8, 8)]\n    for _ in range(depth):\n"
    "        layers.append(Block())\n    return nn.Sequential(*layers)\nnet = FSDP(make(4))\n",
    "Lightning builds it later": "import lightning as L\nclass Lit(L.LightningModule):\n    def configure_model(self):\n"
    "        self.net = nn.Sequential(nn.Linear(8, 8), *[Block() for _ in range(4)])\n"
    "    def training_step(self, batch, index):\n        return self.net(batch).mean()\n"
    'L.Trainer(strategy="fsdp").fit(Lit())\n',
}
ACCELERATE = """\
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from transformers import AutoModelForCausalLM

def main(loader):
    accelerator = Accelerator({0})
    model = AutoModelForCausalLM.from_pretrained("Salesforce/codegen-2B-mono")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    model = accelerator.prepare(model.train())
    for batch in loader:
        accelerator.backward(model(**batch).loss)
"""
PLUGIN = "fsdp_plugin=FullyShardedDataParallelPlugin({})"
WHOLE = {
    "by default": "",
    "no policy": "auto_wrap_policy=None",
    "by name": 'auto_wrap_policy="no_wrap"',
    "in capitals": 'auto_wrap_policy="NO_WRAP", sharding_strategy="SHARD_GRAD_OP"',
    "what is not read": 'auto_wrap_policy="no_wrap", min_num_params=1000',
    "by number": "fsdp_version=1, sharding_strategy=1",
}
PARTED = {
    "by size": 'auto_wrap_policy="size_based_wrap"',
    "by class": 'auto_wrap_policy="transformer_based_wrap"',
    "not sharded": 'auto_wrap_policy="no_wrap", sharding_strategy="NO_SHARD"',
    "not sharded, by number": "sharding_strategy=3",
    "FSDP2": 'fsdp_version=2, auto_wrap_policy="no_wrap"',
    "open": "auto_wrap_policy=policy",
}


def codes(script: str) -> set[str]:
    return {found.code for found in check_source(script)}


def _net(parts: tuple[str, str]) -> str:
    return NET.replace("{0}", parts[0]).replace("{1}", parts[1])


@pytest.mark.parametrize("made", [*map(_net, SEVERAL.values()), *MADE.values()], ids=[*SEVERAL, *MADE])
@pytest.mark.parametrize("way", CHECKPOINTS)
def test_blocks_that_checkpoint_themselves_are_several_segments(way: str, made: str) -> None:
    script = BLOCK.replace("CHECKPOINT", CHECKPOINTS[way]) + made
    assert "CKPT302" in codes(script)
    assert "CKPT302" not in codes(script.replace("use_reentrant=True", "use_reentrant=False"))


@pytest.mark.parametrize("way", ONE)
def test_one_block_is_one_segment(way: str) -> None:
    assert "CKPT302" not in codes(BLOCK.replace("CHECKPOINT", CHECKPOINTS["a method"]) + _net(ONE[way]))


@pytest.mark.parametrize("way", WHOLE)
def test_accelerate_shards_a_whole_model(way: str) -> None:
    assert "CKPT302" in codes(ACCELERATE.replace("{0}", PLUGIN.format(WHOLE[way])))


@pytest.mark.parametrize("way", PARTED)
def test_accelerate_shards_no_whole_model(way: str) -> None:
    assert "CKPT302" not in codes(ACCELERATE.replace("{0}", PLUGIN.format(PARTED[way])))
