"""How a check function asks for layers that the model has none of: whichever way, it is said that nothing is wrapped."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import functools
import torch
from functools import partial
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing, checkpoint_wrapper, CheckpointImpl, CheckpointWrapper
from transformers import LlamaForCausalLM, AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaAttention
from transformers.models.mistral.modeling_mistral import MistralDecoderLayer
from transformers.models.gpt2.modeling_gpt2 import GPT2Block

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
    def forward(self, x):
        return self.fc(x).relu()
class Other(nn.Module):
    def forward(self, x):
        return x
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return x
model = LlamaForCausalLM.from_pretrained("x")
net = Net()
{0}
"""
WAYS = {
    "isinstance": "apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, MistralDecoderLayer))",
    "type is": "apply_activation_checkpointing(model, check_fn=lambda m: type(m) is GPT2Block)",
    "type ==": "apply_activation_checkpointing(model, check_fn=lambda m: type(m) == GPT2Block)",
    "tuple": "apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, (MistralDecoderLayer, GPT2Block)))",
    "name": "apply_activation_checkpointing(model, check_fn=lambda m: m.__class__.__name__ == 'GPT2Block')",
    "type name": "apply_activation_checkpointing(model, check_fn=lambda m: type(m).__name__ == 'BertLayer')",
    "name in": "apply_activation_checkpointing(model, check_fn=lambda m: type(m).__name__ in ['BertLayer', 'GPT2Block'])",
    "def": "def check(m):\n    return isinstance(m, GPT2Block)\napply_activation_checkpointing(model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=check)",
    "def if": "def check(m):\n    if isinstance(m, GPT2Block):\n        return True\n    return False\napply_activation_checkpointing(model, check_fn=check)",
    "partial": "def check(m, kinds):\n    return isinstance(m, kinds)\napply_activation_checkpointing(model, check_fn=functools.partial(check, kinds=(GPT2Block,)))",
    "factory": "def make(cls):\n    def check(m):\n        return isinstance(m, cls)\n    return check\napply_activation_checkpointing(model, check_fn=make(GPT2Block))",
    "own": "apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Other))",
    "own hf": "apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, LlamaDecoderLayer))",
    "class itself": "apply_activation_checkpointing(model, check_fn=lambda m: m is LlamaDecoderLayer)",
    "issubclass": "apply_activation_checkpointing(model, check_fn=lambda m: m == LlamaDecoderLayer)",
    "helper": "def enable(m, cls):\n    apply_activation_checkpointing(m, check_fn=lambda s: isinstance(s, cls))\nenable(model, GPT2Block)",
    "dict": "LAYERS = {'llama': GPT2Block}\napply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, LAYERS['llama']))",
    "set": "KINDS = {GPT2Block}\napply_activation_checkpointing(model, check_fn=lambda m: type(m) in KINDS)",
    "encoder": "apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, nn.TransformerEncoderLayer))",
    "class check": "class Check:\n    def __call__(self, m):\n        return isinstance(m, GPT2Block)\napply_activation_checkpointing(model, check_fn=Check())",
    "auto policy": "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\napply_activation_checkpointing(model, auto_wrap_policy=ModuleWrapPolicy({GPT2Block}))",
    "bool": "def check(m):\n    ok = isinstance(m, GPT2Block)\n    return ok\napply_activation_checkpointing(model, check_fn=check)",
    "any": "def check(m):\n    return any(isinstance(m, c) for c in (GPT2Block, MistralDecoderLayer))\napply_activation_checkpointing(model, check_fn=check)",
    "and": "apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, GPT2Block) and not isinstance(m, CheckpointWrapper))",
}
#: Ways in which some module of the model passes, or may.
RIGHT = {
    "right": "apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, LlamaDecoderLayer))",
    "one of": "apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, (GPT2Block, LlamaDecoderLayer)))",
    "any": "def check(m):\n    return any(isinstance(m, c) for c in (GPT2Block, LlamaDecoderLayer))\napply_activation_checkpointing(model, check_fn=check)",
    "or": "apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, GPT2Block) or isinstance(m, LlamaDecoderLayer))",
    "and": "apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, LlamaDecoderLayer) and not isinstance(m, CheckpointWrapper))",
    "not": "apply_activation_checkpointing(model, check_fn=lambda m: not isinstance(m, GPT2Block))",
    "branches": "def check(m):\n    if isinstance(m, GPT2Block):\n        return False\n    return True\napply_activation_checkpointing(model, check_fn=check)",
    "branches2": "def check(m):\n    if isinstance(m, GPT2Block):\n        return True\n    return hasattr(m, 'self_attn')\napply_activation_checkpointing(model, check_fn=check)",
    "set": "KINDS = {GPT2Block, LlamaDecoderLayer}\napply_activation_checkpointing(model, check_fn=lambda m: type(m) in KINDS)",
    "call": "class Check:\n    def __call__(self, m):\n        return isinstance(m, LlamaDecoderLayer)\napply_activation_checkpointing(model, check_fn=Check())",
    "own": "apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Block))",
    "hf inside": "class W(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.lm = LlamaForCausalLM.from_pretrained('x')\nw = W()\napply_activation_checkpointing(w, check_fn=lambda m: isinstance(m, LlamaDecoderLayer))",
    "heir": "class MyLayer(LlamaDecoderLayer):\n    pass\nclass W(nn.Module):\n    def __init__(self, c):\n        super().__init__()\n        self.l = MyLayer(c, 0)\napply_activation_checkpointing(W(None), check_fn=lambda m: isinstance(m, LlamaDecoderLayer))",
}

#: Checks and policies that every module passes.
ALL = {
    "module": "def is_module(m):\n    return isinstance(m, nn.Module)\ndef wrap(model):\n    apply_activation_checkpointing(model, check_fn=is_module)",
    "tuple": "def wrap(model):\n    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, (nn.Module,)))",
    "not None": "def wrap(model):\n    apply_activation_checkpointing(model, check_fn=lambda m: m is not None)",
    "constant": "KINDS = (nn.Linear, nn.Module)\ndef wrap(model):\n    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, KINDS))",
    "issubclass": "def wrap(model):\n    apply_activation_checkpointing(model, check_fn=lambda m: issubclass(type(m), nn.Module))",
    "branches": "def check(m):\n    if isinstance(m, nn.Module):\n        return True\n    return False\ndef wrap(model):\n    apply_activation_checkpointing(model, check_fn=check)",
    "default": "def check(m, kind=nn.Module):\n    return isinstance(m, kind)\ndef wrap(model):\n    apply_activation_checkpointing(model, check_fn=check)",
    "partial": "def check(m, kind):\n    return isinstance(m, kind)\ndef wrap(model):\n    apply_activation_checkpointing(model, check_fn=partial(check, kind=nn.Module))",
    "argument": "def wrap(model, kind=nn.Module):\n    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, kind))\nwrap(nn.Sequential(nn.Linear(4, 4), nn.GELU()))",
    "object": "class Check:\n    def __call__(self, m):\n        return True\ndef wrap(model):\n    apply_activation_checkpointing(model, check_fn=Check())",
    "and": "def wrap(model):\n    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, nn.Module) and callable(m))",
    "hasattr": "def wrap(model):\n    apply_activation_checkpointing(model, check_fn=lambda m: hasattr(m, 'forward'))",
    "callable": "def wrap(model):\n    apply_activation_checkpointing(model, check_fn=callable)",
    "factory": "def make(kinds):\n    def check(m):\n        return isinstance(m, kinds)\n    return check\ndef wrap(model):\n    apply_activation_checkpointing(model, check_fn=make((nn.Module,)))",
    "policy": "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\ndef wrap(model):\n    apply_activation_checkpointing(model, auto_wrap_policy=ModuleWrapPolicy({nn.Module}))",
    "options": "OPTIONS = {'check_fn': lambda m: isinstance(m, nn.Module)}\ndef wrap(model):\n    apply_activation_checkpointing(model, **OPTIONS)",
    "or": "def wrap(model):\n    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, nn.Module) or isinstance(m, nn.Linear))",
    "always policy": "from torch.distributed.fsdp.wrap import always_wrap_policy\ndef wrap(model):\n    apply_activation_checkpointing(model, auto_wrap_policy=always_wrap_policy)",
    "lambda policy": "from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy\ndef wrap(model):\n    apply_activation_checkpointing(model, auto_wrap_policy=partial(lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, nn.Module)))",
}
#: Those that some module fails, or may.
SOME = {
    "open argument": "def wrap(model, kind=nn.Module):\n    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, kind))",
    "and a block": "class Block(nn.Module):\n    pass\ndef wrap(model):\n    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, nn.Module) and isinstance(m, Block))",
    "policy first": "class Block(nn.Module):\n    pass\ndef wrap(model, policy):\n    apply_activation_checkpointing(model, check_fn=lambda m: True, auto_wrap_policy=policy)",
    "partial": "class Block(nn.Module):\n    pass\ndef check(m, kind=nn.Module):\n    return isinstance(m, kind)\ndef wrap(model):\n    apply_activation_checkpointing(model, check_fn=partial(check, kind=Block))",
    "part of it": "def wrap(model):\n    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m.inner, nn.Module))",
    "own attribute": "def wrap(model):\n    apply_activation_checkpointing(model, check_fn=lambda m: hasattr(m, 'block_id'))",
    "refused before": "def check(m):\n    if not hasattr(m, 'block_id'):\n        return False\n    return isinstance(m, nn.Module)\ndef wrap(model):\n    apply_activation_checkpointing(model, check_fn=check)",
    "another module": "def check(m):\n    m = getattr(m, 'block', None)\n    return isinstance(m, nn.Module)\ndef wrap(model):\n    apply_activation_checkpointing(model, check_fn=check)",
    "policy": "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\nclass Block(nn.Module):\n    pass\ndef wrap(model):\n    apply_activation_checkpointing(model, auto_wrap_policy=ModuleWrapPolicy({Block}))",
    "open constant": "import config\nKINDS = nn.Module\nif config.blocks:\n    KINDS = nn.TransformerEncoderLayer\ndef wrap(model):\n    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, KINDS))",
    "not the list": "class nn_Module: pass\ndef wrap(model):\n    layers = model.layers\n    apply_activation_checkpointing(model, check_fn=lambda m: m is not layers)",
}


def codes(call: str) -> set[str]:
    return {found.code for found in check_source(SCRIPT.replace("{0}", call))}


@pytest.mark.parametrize("way", WAYS)
def test_no_module_passes(way):
    assert "CKPT208" in codes(WAYS[way])


@pytest.mark.parametrize("way", RIGHT)
def test_some_module_passes(way):
    assert "CKPT208" not in codes(RIGHT[way])


FAMILIES = """\
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import {0}
from transformers.models.{2}.modeling_{2} import {1}
model = {0}.from_pretrained("x")
apply_activation_checkpointing(model, check_fn=lambda m: {3})
"""
INSTANCE, NAMED, OF_TYPE = "isinstance(m, {1})", "type(m).__name__ == '{1}'", "type(m) in ({1},)"
#: A model, and a layer of another family that is named alike, in its module.
OTHER_VERSIONS = {
    "the first one": ("Gemma2ForCausalLM", "GemmaDecoderLayer", "gemma", INSTANCE),
    "the second one": ("GemmaForCausalLM", "Gemma2DecoderLayer", "gemma2", INSTANCE),
    "experts": ("Qwen3ForCausalLM", "Qwen3MoeDecoderLayer", "qwen3_moe", INSTANCE),
    "no experts": ("Qwen2MoeForCausalLM", "Qwen2DecoderLayer", "qwen2", INSTANCE),
    "by name": ("Phi3ForCausalLM", "PhiDecoderLayer", "phi", NAMED),
    "by type": ("Olmo2ForCausalLM", "OlmoDecoderLayer", "olmo", OF_TYPE),
}
#: Models that hold such layers, or may.
ITS_OWN = {
    "its own": ("Gemma2ForCausalLM", "Gemma2DecoderLayer", "gemma2", INSTANCE),
    "by name": ("Phi3ForCausalLM", "Phi3DecoderLayer", "phi3", NAMED),
    "a text model inside": ("Mistral3ForConditionalGeneration", "MistralDecoderLayer", "mistral", INSTANCE),
    "a model around it": ("Qwen2AudioForConditionalGeneration", "Qwen2DecoderLayer", "qwen2", INSTANCE),
    "no layers of its own": ("Mistral3Model", "MistralDecoderLayer", "mistral", INSTANCE),
}


def family_codes(model: str, layer: str, module: str, check: str) -> list[str]:
    script = FAMILIES.format(model, layer, module, check.format(model, layer))
    return [found.code for found in check_source(script)]


@pytest.mark.parametrize("way", OTHER_VERSIONS)
def test_no_layer_is_of_another_version_of_the_family(way):
    assert family_codes(*OTHER_VERSIONS[way]) == ["CKPT208"]


@pytest.mark.parametrize("way", ITS_OWN)
def test_layers_may_be_of_the_family(way):
    assert family_codes(*ITS_OWN[way]) == []


@pytest.mark.parametrize("way", ALL)
def test_every_module_passes(way):
    assert "CKPT404" in codes(ALL[way])


@pytest.mark.parametrize("way", SOME)
def test_not_every_module_passes(way):
    assert "CKPT404" not in codes(SOME[way])
