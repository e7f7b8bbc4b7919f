"""How the `forward` of a class of layers is replaced: whichever way, it takes the checkpoint along; of a part, not."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import functools, importlib, time
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from transformers.models.mistral import modeling_mistral

def timer(method):
    @functools.wraps(method)
    def timed(self, *args, **kwargs):
        started = time.perf_counter()
        out = method(self, *args, **kwargs)
        print(time.perf_counter() - started)
        return out
    return timed

{0}

def train(rows):
    model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3")
    Trainer(model, TrainingArguments("out", gradient_checkpointing=True), train_dataset=rows).train()
"""
WAYS = {
    "variable": """\
layer = modeling_mistral.MistralDecoderLayer
layer.forward = timer(layer.forward)
""",
    "names given": """\
def install(module, *names):
    for name in names:
        cls = getattr(module, name)
        cls.forward = timer(cls.forward)

install(modeling_mistral, "MistralDecoderLayer")
""",
    "classes": """\
for cls in (modeling_mistral.MistralDecoderLayer, modeling_mistral.MistralMLP):
    cls.forward = timer(cls.forward)
""",
    "names": """\
for name in ("MistralMLP", "MistralDecoderLayer"):
    cls = getattr(modeling_mistral, name)
    setattr(cls, "forward", timer(cls.forward))
""",
    "pairs": """\
for module, name in [(modeling_mistral, "MistralDecoderLayer"), (modeling_mistral, "MistralMLP")]:
    cls = getattr(module, name)
    cls.forward = timer(cls.forward)
""",
    "dict": """\
PATCHES = {"MistralDecoderLayer": timer}
for name, patch in PATCHES.items():
    cls = getattr(modeling_mistral, name)
    cls.forward = patch(cls.forward)
""",
    "object": """\
class Timers:
    def __init__(self, *classes):
        self.classes = classes
    def install(self):
        for cls in self.classes:
            cls.forward = timer(cls.forward)

Timers(modeling_mistral.MistralDecoderLayer, modeling_mistral.MistralMLP).install()
""",
    "decorator": """\
def replaces(cls):
    def register(function):
        cls.forward = function
        return function
    return register

@replaces(modeling_mistral.MistralDecoderLayer)
def forward(self, hidden_states, **kwargs):
    return hidden_states + self.mlp(hidden_states)
""",
    "module by name": """\
module = importlib.import_module("transformers.models.mistral.modeling_mistral")
module.MistralDecoderLayer.forward = timer(module.MistralDecoderLayer.forward)
""",
}
RIGHT = {
    **{way: script.replace("DecoderLayer", "Attention") for way, script in WAYS.items()},
    "open": """\
def install(cls):
    cls.forward = timer(cls.forward)

import sys
install(getattr(modeling_mistral, sys.argv[1]))
""",
    "of objects": """\
def install(model):
    # "MistralDecoderLayer" and what it is called in other models
    for layer in model.model.layers:
        layer.forward = timer(type(layer).forward).__get__(layer)
""",
}

#: What is done to the model before it is trained: of one layer, the class is that of all.
PREPARED = {
    "type": "type(model.model.layers[0]).forward = timer(type(model.model.layers[0]).forward)",
    "class of an object": "kind = model.model.layers[-1].__class__; kind.forward = timer(kind.forward)",
    "class of the first": "for layer in model.model.layers[:1]: type(layer).forward = timer(type(layer).forward)",
    "set of classes": "for kind in {type(layer) for layer in model.model.layers}: kind.forward = timer(kind.forward)",
    "setattr": "kind = type(model.get_decoder().layers[0]); setattr(kind, 'forward', timer(kind.forward))",
    "objects": "for layer in model.model.layers[:2]: layer.forward = mlp_only.__get__(layer)",
}
PREPARED_RIGHT = {
    **{
        way: script.replace("layers[0])", "layers[0].self_attn)")
        for way, script in PREPARED.items()
        if "[0])" in script
    },
    "objects": "for layer in model.model.layers[:2]: layer.forward = timer(type(layer).forward).__get__(layer)",
    "head": "type(model.lm_head).forward = timer(type(model.lm_head).forward)",
    "taken back": "kind = type(model.model.layers[0]); kind.forward = mlp_only; kind.forward = modeling_mistral.run",
}


def codes(patch: str) -> set[str]:
    return {found.code for found in check_source(SCRIPT.replace("{0}", patch))}


@pytest.mark.parametrize("way", WAYS)
def test_the_checkpoint_is_lost(way):
    assert "CKPT204" in codes(WAYS[way])


@pytest.mark.parametrize("way", RIGHT)
def test_the_checkpoint_is_kept(way):
    assert "CKPT204" not in codes(RIGHT[way])


def prepared(way: str) -> str:
    plain = "def mlp_only(layer, hidden_states, **kwargs):\n    return hidden_states + layer.mlp(hidden_states)\n"
    script = SCRIPT.replace("{0}", plain)
    before, model, after = script.partition('Mistral-7B-v0.3")\n')
    return f"{before}{model}    {way}\n{after}".replace("; ", "\n    ")


@pytest.mark.parametrize("way", PREPARED)
def test_the_checkpoint_of_a_prepared_model_is_lost(way):
    assert "CKPT204" in {found.code for found in check_source(prepared(PREPARED[way]))}


@pytest.mark.parametrize("way", PREPARED_RIGHT)
def test_the_checkpoint_of_a_prepared_model_is_kept(way):
    assert "CKPT204" not in {found.code for found in check_source(prepared(PREPARED_RIGHT[way]))}
