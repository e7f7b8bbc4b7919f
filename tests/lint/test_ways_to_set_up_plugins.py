"""Settings of FSDP's plugin that an object makes by its own attributes, and models that are evaluated between epochs."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

DATACLASS = """
@dataclasses.dataclass
class Sharding:
    layer: str
    recompute: bool = True
"""
PLAIN = """
class Sharding:
    def __init__(self, layer, recompute=True):
        self.layer, self.recompute = layer, recompute
"""
SCRIPT = """
import dataclasses
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from transformers import AutoModelForSequenceClassification
CLASS
    def plugin(self):
        options = {"fsdp_version": 2}
        if self.recompute:
            options["activation_checkpointing"] = True
        return FullyShardedDataParallelPlugin(**options)

def evaluate(model, batches):
    model.eval()
    return [model(**batch).logits for batch in batches]

def main(batches):
    MADE
    accelerator = Accelerator(fsdp_plugin=plugin)
    model = AutoModelForSequenceClassification.from_pretrained("FacebookAI/roberta-large")
    model = accelerator.prepare(model)
    for epoch in range(3):
        BEFORE
        for batch in batches:
            accelerator.backward(model(**batch).loss)
        evaluate(model, batches)

main([{}])
"""
ON = {
    "at once": 'plugin = Sharding("RobertaLayer").plugin()',
    "in a variable": 'sharding = Sharding("RobertaLayer", True)\n    plugin = sharding.plugin()',
}
OPEN = {
    "off": 'plugin = Sharding("RobertaLayer", recompute=False).plugin()',
    "set later": 'sharding = Sharding("RobertaLayer")\n    sharding.recompute = False\n    plugin = sharding.plugin()',
    "set by name": 'sharding = Sharding("RobertaLayer")\n    setattr(sharding, *read())\n    plugin = sharding.plugin()',
    "given to somebody": 'sharding = Sharding("RobertaLayer")\n    configure(sharding)\n    plugin = sharding.plugin()',
    "open": 'plugin = Sharding("RobertaLayer", asked()).plugin()',
    "one that is given": "plugin = batches.sharding.plugin()",
}
WRITTEN = {
    "on": ("plugin = FullyShardedDataParallelPlugin(fsdp_version=2)\n    plugin.activation_checkpointing = True", True),
    "off again": (
        "plugin = FullyShardedDataParallelPlugin(fsdp_version=2, activation_checkpointing=True)\n"
        "    plugin.activation_checkpointing = False",
        False,
    ),
    "under a condition": (
        "plugin = FullyShardedDataParallelPlugin(fsdp_version=2)\n"
        "    if asked():\n        plugin.activation_checkpointing = True",
        False,
    ),
    "open": (
        "plugin = FullyShardedDataParallelPlugin(fsdp_version=2)\n    plugin.activation_checkpointing = asked()",
        False,
    ),
}
IN_EVAL = {
    "never in train mode": "pass",
    "in eval mode again": "model.train(); model.eval()",
    "by an argument": "model.train(); model.train(False)",
    "evaluated before": "model.train(); evaluate(model, batches)",
}


def codes(cls, made, before="model.train()"):
    script = SCRIPT.replace("CLASS", cls).replace("MADE", made).replace("BEFORE", before)
    return {finding.code for finding in check_source(script)}


@pytest.mark.parametrize("cls", [DATACLASS, PLAIN], ids=["a dataclass", "a plain class"])
@pytest.mark.parametrize("way", ON)
def test_what_the_constructor_set_is_what_a_method_reads(cls, way):
    assert "CKPT109" in codes(cls, ON[way])


@pytest.mark.parametrize("cls", [DATACLASS, PLAIN], ids=["a dataclass", "a plain class"])
@pytest.mark.parametrize("way", OPEN)
def test_what_something_else_may_set_is_open(cls, way):
    assert "CKPT109" not in codes(cls, OPEN[way])


@pytest.mark.parametrize("way", IN_EVAL)
def test_a_model_in_eval_mode_does_not_drop(way):
    assert "CKPT109" not in codes(DATACLASS, ON["at once"], IN_EVAL[way])


@pytest.mark.parametrize("way", WRITTEN)
def test_an_attribute_of_the_plugin_switches_it(way):
    made, is_on = WRITTEN[way]
    assert ("CKPT109" in codes(DATACLASS, made)) is is_on
