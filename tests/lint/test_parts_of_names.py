"""Tests on parts of the names of parameters, which checkpoint wrappers make longer."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
"""

WRONG = {
    "split index": """
def groups(model, is_block):
    apply_activation_checkpointing(model, check_fn=is_block)
    attn, rest = [], []
    for name, p in model.named_parameters():
        if name.split(".")[2] == "attn":
            attn.append(p)
        else:
            rest.append(p)
    return attn, rest
""",
    "parts var": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(checkpoint_wrapper(Block()) for _ in range(4))
def main():
    net = Encoder()
    for name, p in net.named_parameters():
        parts = name.split(".")
        if parts[0] == "blocks" and parts[2] == "fc":
            p.requires_grad = False
    return net
""",
    "unpacked": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
def main():
    net = Encoder()
    apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Block))
    for name, p in net.named_parameters():
        _, idx, kind, *rest = name.split(".")
        if kind in ("fc", "mlp"):
            p.requires_grad = False
    return net
""",
    "hf split": """
from functools import partial
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, LlamaDecoderLayer))
for n, p in model.named_parameters():
    parts = n.split(".")
    if len(parts) > 3 and parts[3] == "self_attn":
        p.requires_grad = False
""",
    "join prefix": """
def groups(model, is_block):
    apply_activation_checkpointing(model, check_fn=is_block)
    for name, p in model.named_parameters():
        rest = ".".join(name.split(".")[2:])
        if rest.startswith("attn.qkv"):
            p.requires_grad = False
""",
    "table kind": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
RATES = {"norm": 0.1, "fc": 0.2}
def main():
    net = Encoder()
    apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Block))
    return [{"params": [p], "lr": RATES.get(name.split(".")[2], 0.5)} for name, p in net.named_parameters()]
""",
    "comp filter": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
def main():
    net = Encoder()
    apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Block))
    return [p for n, p in net.named_parameters() if n.split(".")[2:3] == ["norm"]]
""",
    "count dots": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
def main():
    net = Encoder()
    for i in range(len(net.blocks)):
        net.blocks[i] = checkpoint_wrapper(net.blocks[i])
    for n, p in net.named_parameters():
        if n.count(".") == 3 and n.endswith("weight"):
            p.requires_grad = False
    return net
""",
    "re sub index": """
import re
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
def main():
    net = Encoder()
    apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Block))
    for name, p in net.named_parameters():
        short = re.sub(r"^blocks\\.\\d+\\.", "", name)
        if short == "fc.weight":
            p.requires_grad = False
    return net
""",
    "removeprefix": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
def main():
    net = Encoder()
    apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Block))
    for name, p in net.named_parameters():
        for i in range(4):
            if name.removeprefix(f"blocks.{i}.").startswith("fc"):
                p.requires_grad = False
    return net
""",
    "module names": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
def main():
    net = Encoder()
    apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Block))
    for name, module in net.named_modules():
        if len(name.split(".")) == 3 and name.split(".")[2] == "fc":
            module.requires_grad_(False)
    return net
""",
    "attribute wrap": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.head = nn.Linear(8, 2)
def main():
    net = Net()
    net.encoder = checkpoint_wrapper(net.encoder)
    for name, p in net.named_parameters():
        if name.split(".")[1] == "0":
            p.requires_grad = False
    return net
""",
    "methods": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
class Trainer:
    def __init__(self):
        self.model = Encoder()
        apply_activation_checkpointing(self.model, check_fn=lambda m: isinstance(m, Block))
    def groups(self):
        return [p for n, p in self.model.named_parameters() if n.split(".")[2] == "norm"], [p for n, p in self.model.named_parameters() if n.startswith("blocks.0.fc")]
""",
}

RIGHT = {
    "split layer index": """
def groups(model, is_block):
    apply_activation_checkpointing(model, check_fn=is_block)
    for name, p in model.named_parameters():
        if name.startswith("blocks") and int(name.split(".")[1]) < 4:
            p.requires_grad = False
""",
    "parts last": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(checkpoint_wrapper(Block()) for _ in range(4))
def main():
    net = Encoder()
    for name, p in net.named_parameters():
        parts = name.split(".")
        if parts[0] == "blocks" and parts[-2] == "fc" and parts[-1] != "bias":
            p.requires_grad = False
    return net
""",
    "wrapped inner": """
class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(8), Mlp()
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
def main():
    net = Encoder()
    apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Mlp))
    for name, p in net.named_parameters():
        parts = name.split(".")
        if parts[2] == "mlp":
            p.requires_grad = False
    return net
""",
    "wrapped linear": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(8), nn.Linear(8, 8)
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
def main():
    net = Encoder()
    apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, nn.Linear))
    for name, p in net.named_parameters():
        parts = name.split(".")
        if parts[2] == "mlp":
            p.requires_grad = False
    return net
""",
    "hf layer number": """
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, LlamaDecoderLayer))
for n, p in model.named_parameters():
    parts = n.split(".")
    if len(parts) > 2 and parts[1] == "layers" and int(parts[2]) < 8:
        p.requires_grad = False
""",
    "before wrap": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
def main():
    net = Encoder()
    for name, p in net.named_parameters():
        if name.split(".")[2] == "fc":
            p.requires_grad = False
    apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Block))
    return net
""",
    "strips wrapper": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
def main():
    net = Encoder()
    apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Block))
    for name, p in net.named_parameters():
        parts = [q for q in name.split(".") if q != "_checkpoint_wrapped_module"]
        if parts[2] == "fc":
            p.requires_grad = False
    return net
""",
    "kind in parts": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
def main():
    net = Encoder()
    apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Block))
    for name, p in net.named_parameters():
        if "fc" in name.split("."):
            p.requires_grad = False
    return net
""",
    "methods before": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
class Trainer:
    def __init__(self):
        self.model = Encoder()
        self.groups()
        apply_activation_checkpointing(self.model, check_fn=lambda m: isinstance(m, Block))
    def groups(self):
        return [p for n, p in self.model.named_parameters() if n.split(".")[2] == "norm"]
""",
    "methods optional": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
class Trainer:
    def __init__(self, ckpt):
        self.model = Encoder()
        if ckpt:
            apply_activation_checkpointing(self.model, check_fn=lambda m: isinstance(m, Block))
    def groups(self):
        return [p for n, p in self.model.named_parameters() if n.split(".")[2] == "norm"]
""",
}


def codes(case: str) -> set[str]:
    return {finding.code for finding in check_source(HEAD + case, "train.py")}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_mistake_is_found(case):
    assert "CKPT131" in codes(case)


@pytest.mark.parametrize("case", RIGHT.values(), ids=RIGHT)
def test_its_right_neighbour_is_not(case):
    assert "CKPT131" not in codes(case)


def _frozen(case: str) -> int:
    space: dict[str, Any] = {}
    exec(HEAD + case, space)
    return sum(not parameter.requires_grad for parameter in space["main"]().parameters())


@pytest.mark.parametrize("name", [name for name, case in WRONG.items() if "return net" in case])
def test_no_new_name_passes_a_test_that_is_reported(name):
    pytest.importorskip("torch")
    plain = WRONG[name].replace("checkpoint_wrapper(Block())", "Block()").replace("checkpoint_wrapper(net.", "(net.")
    plain = re.sub(r"\n *apply_activation_checkpointing\(.*", "", plain)
    assert _frozen(plain) > 0
    assert _frozen(WRONG[name]) == 0
