"""How what a wrapper or a checkpoint gives is lost: whichever way, it is said; what is used in the end is left alone."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import functools
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, CheckpointImpl
from transformers import AutoModelForCausalLM, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
wrap = functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT)

{0}
"""
WAYS = {
    "for": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    for layer in model.model.layers:
        layer = checkpoint_wrapper(layer)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "for expr": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    for layer in model.model.layers:
        checkpoint_wrapper(layer)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "enumerate": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    for i, layer in enumerate(model.model.layers):
        layer = wrap(layer)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "comp": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    [checkpoint_wrapper(layer) for layer in model.model.layers]
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "comp var": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    layers = [checkpoint_wrapper(layer) for layer in model.model.layers]
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "map": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    list(map(checkpoint_wrapper, model.model.layers))
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "named_modules": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    for name, module in model.named_modules():
        if isinstance(module, LlamaDecoderLayer):
            module = wrap(module)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "modules": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    for module in model.modules():
        if isinstance(module, LlamaDecoderLayer):
            checkpoint_wrapper(module)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "apply": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    model.apply(lambda m: checkpoint_wrapper(m) if isinstance(m, LlamaDecoderLayer) else m)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "apply fn": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    def fn(m):
        if isinstance(m, LlamaDecoderLayer):
            return checkpoint_wrapper(m)
        return m
    model.apply(fn)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "helper": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    enable(model)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()

def enable(model):
    for layer in model.model.layers:
        layer = checkpoint_wrapper(layer)
""",
    "helper returned": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    enable(model)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()

def enable(model):
    for layer in model.model.layers:
        layer = checkpoint_wrapper(layer)
    return model
""",
    "helper layer": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    for layer in model.model.layers:
        add(layer)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()

def add(layer):
    return checkpoint_wrapper(layer)
""",
    "helper layer rebinding": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    for layer in model.model.layers:
        add(layer)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()

def add(layer):
    layer = checkpoint_wrapper(layer)
""",
    "whole": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    checkpoint_wrapper(model.model)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "var": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    wrapped = checkpoint_wrapper(model.model.layers[0])
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "list copy": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    layers = list(model.model.layers)
    for i in range(len(layers)):
        layers[i] = checkpoint_wrapper(layers[i])
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "list append": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    new = []
    for layer in model.model.layers:
        new.append(checkpoint_wrapper(layer))
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "dict": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    wrapped = {i: checkpoint_wrapper(l) for i, l in enumerate(model.model.layers)}
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "zip": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    for layer, i in zip(model.model.layers, range(32)):
        layer = checkpoint_wrapper(layer)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "range local": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    for i in range(len(model.model.layers)):
        layer = model.model.layers[i]
        layer = checkpoint_wrapper(layer)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "named_children": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    for name, layer in model.model.layers.named_children():
        layer = checkpoint_wrapper(layer)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "recursion": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    rec(model)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()

def rec(module):
    for child in module.children():
        if isinstance(child, LlamaDecoderLayer):
            child = checkpoint_wrapper(child)
        else:
            rec(child)
""",
    "modulelist": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    blocks = nn.ModuleList([checkpoint_wrapper(l) for l in model.model.layers])
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "underscore": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    for layer in model.model.layers:
        _ = checkpoint_wrapper(layer)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "cond": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    for i, layer in enumerate(model.model.layers):
        if i % 2 == 0:
            layer = checkpoint_wrapper(layer)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "items": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    for k, v in model.model.layers._modules.items():
        v = checkpoint_wrapper(v)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "Trainer": """\
from transformers import Trainer, TrainingArguments
model = LlamaForCausalLM.from_pretrained('x')
for block in model.model.layers:
    block = wrap(block)
Trainer(model=model, args=TrainingArguments('o')).train()
""",
    "class": """\
class Exp:
    def __init__(self, name):
        self.model = LlamaForCausalLM.from_pretrained(name)
    def setup(self):
        for layer in self.model.model.layers:
            layer = checkpoint_wrapper(layer)
    def fit(self, loader):
        self.setup()
        for b in loader:
            self.model(**b, use_cache=False).loss.backward()
""",
    "own fwd drop": """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(4)])
    def forward(self, x):
        for b in self.blocks:
            checkpoint(b, x, use_reentrant=False)
        return x
""",
    "own fwd other": """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(4)])
    def forward(self, x):
        for b in self.blocks:
            y = checkpoint(b, x, use_reentrant=False)
            x = b(x)
        return x
""",
    "own fwd ret": """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.GELU())
    def run(self, x):
        checkpoint(self.block, x, use_reentrant=False)
    def forward(self, x):
        self.run(x)
        return x
""",
    "own init": """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(4)])
        for b in self.blocks:
            b = checkpoint_wrapper(b)
    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return x
""",
    "own init local": """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.GELU())
        block = checkpoint_wrapper(self.block)
    def forward(self, x):
        return self.block(x)
""",
    "own init list": """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        blocks = [nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(4)]
        self.blocks = nn.ModuleList(blocks)
        blocks = [checkpoint_wrapper(b) for b in blocks]
    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return x
""",
    "if ckpt": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    use_ckpt = True
    if use_ckpt:
        for layer in model.model.layers:
            layer = checkpoint_wrapper(layer)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "automodel": """\
model = AutoModelForCausalLM.from_pretrained("gpt2")
for block in model.transformer.h:
    block = checkpoint_wrapper(block)
model.train()
""",
    "ternary": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    for layer in model.model.layers:
        layer = checkpoint_wrapper(layer) if layer.self_attn.layer_idx > 2 else layer
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "returned tuple": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    model2, n = count(model)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()

def count(model):
    n = 0
    for layer in model.model.layers:
        layer = checkpoint_wrapper(layer)
        n += 1
    return model, n
""",
    "modules called like methods of containers": """\
def mlp(i, o):
    return nn.Sequential(nn.Linear(i, o), nn.SiLU())
class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.message, self.update, self.add = mlp(8, 8), mlp(16, 8), nn.Linear(8, 8)
    def forward(self, x):
        return self.add(x) + self.update(torch.cat([x, self.message(x)], -1))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(Conv() for _ in range(4))
    def forward(self, x):
        segment = functools.partial(checkpoint, use_reentrant=False)
        for conv in self.convs:
            segment(conv, x)
        return x
""",
}
#: Ways in which it is used.
USED = {
    "run": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    new = []
    for layer in model.model.layers:
        new.append(checkpoint_wrapper(layer))
    for w in new:
        print(w(1))
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "put": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    new = []
    for layer in model.model.layers:
        new.append(checkpoint_wrapper(layer))
    model.model.layers = nn.ModuleList(new)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "returned": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    new = make(model)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()

def make(model):
    new = []
    for layer in model.model.layers:
        new.append(checkpoint_wrapper(layer))
    return new
""",
    "slice": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    layers = list(model.model.layers)
    for i in range(len(layers)):
        layers[i] = checkpoint_wrapper(layers[i])
    model.model.layers = nn.ModuleList(layers)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "alias": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    layers = model.model.layers
    for i in range(len(layers)):
        layers[i] = checkpoint_wrapper(layers[i])
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "alias2": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    layers = model.model.layers
    for i, layer in enumerate(layers):
        layers[i] = checkpoint_wrapper(layer)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "own": """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        blocks = []
        for _ in range(4):
            b = nn.Linear(8, 8)
            b = checkpoint_wrapper(b)
            blocks.append(b)
        self.blocks = nn.ModuleList(blocks)
    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return x
""",
    "own2": """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList()
        for i in range(4):
            b = nn.Sequential(nn.Linear(8, 8))
            b = checkpoint_wrapper(b) if i > 1 else b
            self.blocks.append(b)
    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return x
""",
    "script global": """\
blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
for i, block in enumerate(blocks):
    block = checkpoint_wrapper(block)
    blocks[i] = block
""",
    "script last": """\
layers = []
for i in range(3):
    layer = checkpoint_wrapper(nn.Linear(4, 4))
    layers.append(layer)
net = nn.Sequential(*layers)
""",
    "setattr": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    for n, layer in model.model.layers.named_children():
        layer = checkpoint_wrapper(layer)
        setattr(model.model.layers, n, layer)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "yield": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    model.model.layers = nn.ModuleList(gen(model))
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()

def gen(model):
    for layer in model.model.layers:
        layer = checkpoint_wrapper(layer)
        yield layer
""",
    "dict used": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    wrapped = {i: checkpoint_wrapper(l) for i, l in enumerate(model.model.layers)}
    for i, l in wrapped.items():
        model.model.layers[i] = l
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "cond": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    for i in range(len(model.model.layers)):
        layer = model.model.layers[i]
        if i % 2:
            layer = checkpoint_wrapper(layer)
        model.model.layers[i] = layer
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "while": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    i = 0
    while i < 3:
        layer = model.model.layers[i]
        layer = checkpoint_wrapper(layer)
        model.model.layers[i] = layer
        i += 1
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "prev": """\
def main(name, loader):
    model = LlamaForCausalLM.from_pretrained(name)
    prev = None
    for i in range(3):
        layer = model.model.layers[i]
        if prev is not None:
            model.model.layers[i - 1] = prev
        prev = checkpoint_wrapper(layer)
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(**batch, use_cache=False).loss.backward()
        opt.step()
""",
    "left behind by a method": """\
class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept, self.lin = {}, nn.Linear(8, 8)
    def put(self, x):
        self.kept["x"] = self.lin(x)
    def forward(self, x):
        self.put(x)
        return x
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Memory()
    def forward(self, x):
        checkpoint(self.block, x, use_reentrant=False)
        return x + self.block.kept["x"]
""",
}


def codes(body: str) -> set[str]:
    return {found.code for found in check_source(SCRIPT.replace("{0}", body))}


@pytest.mark.parametrize("way", WAYS)
def test_the_result_is_lost(way):
    assert "CKPT209" in codes(WAYS[way])


@pytest.mark.parametrize("way", USED)
def test_the_result_is_used(way):
    assert "CKPT209" not in codes(USED[way])
