"""Blocks that two calls of torch's wrappers go around, or one around a block and one around a part of it."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
import torch.nn as nn
from functools import partial
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing, checkpoint_wrapper, CheckpointImpl
class Mlp(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
    def forward(self, x):
        return self.down(self.up(x).relu())
class Block(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.norm, self.mlp, self.out = nn.LayerNorm(d), Mlp(d), nn.Linear(d, d)
    def forward(self, x):
        return self.out(x + self.mlp(self.norm(x)))
class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.stem = nn.Linear(d, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(4))
    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = b(x)
        return x
reentrant = partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT)
net = Net()
"""
TWICE = {
    "a part, then the block": """
apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Mlp))
apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Block))
""",
    "the block, then a part": """
apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Block))
apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Mlp))
""",
    "reentrant twice": """
apply_activation_checkpointing(net, checkpoint_wrapper_fn=reentrant, check_fn=lambda m: isinstance(m, Block))
apply_activation_checkpointing(net, checkpoint_wrapper_fn=reentrant, check_fn=lambda m: isinstance(m, Block))
""",
    "in two loops": """
for block in net.blocks:
    block.mlp = checkpoint_wrapper(block.mlp)
for i, block in enumerate(net.blocks):
    net.blocks[i] = checkpoint_wrapper(block)
""",
    "in one loop": """
for i, block in enumerate(net.blocks):
    block.mlp = checkpoint_wrapper(block.mlp)
    net.blocks[i] = checkpoint_wrapper(block)
""",
    "by a helper": """
def wrap(model, cls):
    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, cls))
wrap(net, Block)
wrap(net, Mlp)
""",
    "in a comprehension": """
for i in range(len(net.blocks)):
    b = net.blocks[i]
    b.mlp = checkpoint_wrapper(b.mlp)
net.blocks = nn.ModuleList([checkpoint_wrapper(b) for b in net.blocks])
""",
    "a check and a loop": """
apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Mlp))
for i, block in enumerate(net.blocks):
    net.blocks[i] = checkpoint_wrapper(block)
""",
    "a list of checks": """
def is_block(m): return isinstance(m, Block)
def is_mlp(m): return isinstance(m, Mlp)
CHECKS = [is_block, is_mlp]
for check in CHECKS:
    apply_activation_checkpointing(net, check_fn=check)
""",
    "a model that is given": """
def wrap(model):
    for i, block in enumerate(model.blocks):
        block.mlp = checkpoint_wrapper(block.mlp, checkpoint_impl=CheckpointImpl.REENTRANT)
        model.blocks[i] = checkpoint_wrapper(block, checkpoint_impl=CheckpointImpl.REENTRANT)
""",
    "attention of transformers": """
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaAttention
m = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b")
apply_activation_checkpointing(m, check_fn=lambda x: isinstance(x, LlamaDecoderLayer))
apply_activation_checkpointing(m, check_fn=lambda x: isinstance(x, LlamaAttention))
""",
    "layers of transformers": """
from transformers import AutoModelForCausalLM
m = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b")
for i, layer in enumerate(m.model.layers):
    layer.self_attn = checkpoint_wrapper(layer.self_attn)
    m.model.layers[i] = checkpoint_wrapper(layer)
""",
    "layers of transformers, in two loops": """
from transformers import AutoModelForCausalLM
m = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b")
for layer in m.model.layers:
    layer.mlp = reentrant(layer.mlp)
for i in range(len(m.model.layers)):
    m.model.layers[i] = reentrant(m.model.layers[i])
""",
    "methods": """
class Trainer:
    def __init__(self, model):
        self.model = model
    def wrap_parts(self):
        apply_activation_checkpointing(self.model, check_fn=lambda m: isinstance(m, Mlp))
    def wrap_blocks(self):
        apply_activation_checkpointing(self.model, check_fn=lambda m: isinstance(m, Block))
    def setup(self):
        self.wrap_parts()
        self.wrap_blocks()
Trainer(net).setup()
""",
    "policies": """
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
apply_activation_checkpointing(net, auto_wrap_policy=ModuleWrapPolicy({Block}))
apply_activation_checkpointing(net, auto_wrap_policy=ModuleWrapPolicy({Mlp}))
""",
}
ONCE = {
    "two models": """
other = Net()
apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Mlp))
apply_activation_checkpointing(other, check_fn=lambda m: isinstance(m, Block))
""",
    "one or the other": """
import sys
if len(sys.argv) > 1:
    apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Mlp))
else:
    apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Block))
""",
    "not reentrant, the same": """
apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Block))
apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Block))
""",
    "put back": """
for i, block in enumerate(net.blocks):
    block.mlp = checkpoint_wrapper(block.mlp)
    net.blocks[i] = block
""",
    "by turns": """
for i, block in enumerate(net.blocks):
    if i % 2:
        block.mlp = checkpoint_wrapper(block.mlp)
    else:
        net.blocks[i] = checkpoint_wrapper(block)
""",
    "an open flag": """
import sys
for i, block in enumerate(net.blocks):
    if len(sys.argv) > 1:
        block.mlp = checkpoint_wrapper(block.mlp)
    net.blocks[i] = checkpoint_wrapper(block)
""",
    "halves by ranges": """
for i in range(0, 4, 2):
    net.blocks[i].mlp = checkpoint_wrapper(net.blocks[i].mlp)
for i in range(1, 4, 2):
    net.blocks[i] = checkpoint_wrapper(net.blocks[i])
""",
    "halves by slices": """
for b in net.blocks[:2]:
    b.mlp = checkpoint_wrapper(b.mlp)
for i, b in enumerate(net.blocks):
    if i >= 2:
        net.blocks[i] = checkpoint_wrapper(b)
""",
    "one or the other by `continue`": """
def wrap(net, parts):
    for i, b in enumerate(net.blocks):
        if parts:
            b.mlp = checkpoint_wrapper(b.mlp)
            continue
        net.blocks[i] = checkpoint_wrapper(b)
wrap(net, "mlp" in open("c").read())
""",
    "what is no block": """
apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, nn.LayerNorm))
apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, nn.ModuleList) and not isinstance(m, (Block, Mlp)))
apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Block))
""",
    "by their objects": """
ids = {id(b) for b in list(net.blocks)[:2]}
apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Block) and id(m) in ids)
apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Mlp) and id(m) not in ids)
""",
    "by their objects, in functions": """
inside = {m for b in net.blocks[:2] for m in b.modules()}
def check_block(m):
    return isinstance(m, Block) and m in inside
def check_mlp(m):
    if m in inside:
        return False
    return isinstance(m, Mlp)
apply_activation_checkpointing(net, check_fn=check_block)
apply_activation_checkpointing(net, check_fn=check_mlp)
""",
    "slices of a list": """
apply_activation_checkpointing(net.blocks[:2], check_fn=lambda m: isinstance(m, Block))
apply_activation_checkpointing(net.blocks[2:], check_fn=lambda m: isinstance(m, Mlp))
""",
    "halves of transformers": """
from transformers import AutoModelForCausalLM
m = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b")
for i, layer in enumerate(m.model.layers):
    if i < 12:
        layer.self_attn = checkpoint_wrapper(layer.self_attn)
    else:
        m.model.layers[i] = checkpoint_wrapper(layer)
for layer in m.model.layers[:12]:
    layer.self_attn = reentrant(layer.self_attn)
for i in range(12, 24):
    m.model.layers[i] = reentrant(m.model.layers[i])
""",
    "a few of them": """
def wrap_first(model, n):
    count = 0
    def check(m):
        nonlocal count
        if isinstance(m, Block):
            count += 1
            return count <= n
        return False
    apply_activation_checkpointing(model, check_fn=check)
wrap_first(net, 2)
apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Mlp))
""",
}


def codes(script: str) -> set[str]:
    return {found.code for found in check_source(SCRIPT + script)}


@pytest.mark.parametrize("script", TWICE.values(), ids=TWICE)
def test_a_part_or_a_block_is_wrapped_twice(script):
    assert "CKPT402" in codes(script)


@pytest.mark.parametrize("script", ONCE.values(), ids=ONCE)
def test_each_is_wrapped_once(script):
    assert "CKPT402" not in codes(script)
