"""Language models whose layers are wrapped and whose cache stays on, by whichever loop they are trained."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import lightning as L
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing, checkpoint_wrapper,
)
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
"""
STEP = """
class Tuner(L.LightningModule):
    def __init__(self, name):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(name)
        apply_activation_checkpointing(self.model, check_fn=lambda module: isinstance(module, LlamaDecoderLayer))

    def METHOD(self, batch, number):
        return self.model(**batch).loss
"""
LOOP = """
def train(name, loader, optimizer):
    model = AutoModelForCausalLM.from_pretrained(name)
    WRAP
    model.train()
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
WRAPS = {
    "every second": (
        "for i, layer in list(enumerate(model.model.layers))[::2]:\n        "
        "model.model.layers[i] = checkpoint_wrapper(layer)"
    ),
    "behind the first": (
        "for name, layer in tuple(zip(range(9), model.model.layers))[1:]:\n        "
        "model.model.layers[name] = checkpoint_wrapper(layer)"
    ),
    "the longest list": (
        "stacks = [part for part in model.modules() if isinstance(part, nn.ModuleList)]\n    "
        "layers = max(stacks, key=len)\n    "
        "for i, layer in enumerate(layers):\n        layers[i] = checkpoint_wrapper(layer)"
    ),
}


def codes(script):
    return {finding.code for finding in check_source(HEAD + script)}


@pytest.mark.parametrize(("method", "is_found"), [("training_step", True), ("validation_step", False)])
def test_lightning_trains_what_its_step_gives(method, is_found):
    script = STEP.replace("METHOD", method)
    assert ("CKPT111" in codes(script)) is is_found
    assert "CKPT111" not in codes(script.replace("(name)", "(name, use_cache=False)"))
    assert "CKPT111" not in codes(script.replace("(**batch)", "(**batch, use_cache=False)"))


@pytest.mark.parametrize("way", WRAPS)
def test_layers_however_they_are_taken(way):
    script = LOOP.replace("WRAP", WRAPS[way])
    assert "CKPT111" in codes(script)
    assert "CKPT111" not in codes(script.replace("model.train()", "model.config.use_cache = False"))
    assert "CKPT111" not in codes(script.replace("checkpoint_wrapper(layer)", "layer"))
