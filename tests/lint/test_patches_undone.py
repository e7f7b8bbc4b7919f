"""Replaced `forward` functions of layers that are put back, or replaced once training is over: nothing is lost by them."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """import contextlib
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
def skip(self, hidden_states, **kwargs):
    return hidden_states
def plain(self, hidden_states, *args, **kwargs):
    return hidden_states + self.mlp(hidden_states)
"""
RIGHT = {
    "a context around evaluation": """
@contextlib.contextmanager
def patched():
    old = LlamaDecoderLayer.forward
    LlamaDecoderLayer.forward = skip
    try:
        yield
    finally:
        LlamaDecoderLayer.forward = old
model = AutoModelForCausalLM.from_pretrained("base")
trainer = Trainer(model, TrainingArguments("out", gradient_checkpointing=True), train_dataset=rows)
trainer.train()
with patched():
    trainer.evaluate()
""",
    "tried before training": """
old = LlamaDecoderLayer.forward
LlamaDecoderLayer.forward = plain
model = AutoModelForCausalLM.from_pretrained("base")
try:
    probe(model)
finally:
    LlamaDecoderLayer.forward = old
model.gradient_checkpointing_enable()
trainer = Trainer(model, TrainingArguments("out", gradient_checkpointing=True), train_dataset=rows)
trainer.train()
""",
    "behind the Trainer": """
model = AutoModelForCausalLM.from_pretrained("base")
trainer = Trainer(model, TrainingArguments("out", gradient_checkpointing=True), train_dataset=rows)
trainer.train()
LlamaDecoderLayer.forward = skip
for layer in model.model.layers:
    layer.forward = skip.__get__(layer)
print(trainer.evaluate())
""",
    "behind a loop": """
model = AutoModelForCausalLM.from_pretrained("base")
model.gradient_checkpointing_enable()
for batch in loader:
    model(**batch).loss.backward()
    opt.step()
for layer in model.model.layers:
    layer.forward = skip.__get__(layer)
print(evaluate(model))
""",
}
WRONG = {
    "between epochs": """
model = AutoModelForCausalLM.from_pretrained("base")
model.gradient_checkpointing_enable()
for epoch in range(3):
    for batch in loader:
        model(**batch).loss.backward()
        opt.step()
    for layer in model.model.layers:
        layer.forward = skip.__get__(layer)
    print(evaluate(model))
""",
    "a context around training": """
@contextlib.contextmanager
def patched():
    old = LlamaDecoderLayer.forward
    LlamaDecoderLayer.forward = plain
    try:
        yield
    finally:
        LlamaDecoderLayer.forward = old
model = AutoModelForCausalLM.from_pretrained("base")
trainer = Trainer(model, TrainingArguments("out", gradient_checkpointing=True), train_dataset=rows)
with patched():
    trainer.train()
""",
    "between two trainings": """
model = AutoModelForCausalLM.from_pretrained("base")
Trainer(model, TrainingArguments("out", gradient_checkpointing=True), train_dataset=rows).train()
for layer in model.model.layers:
    layer.forward = skip.__get__(layer)
Trainer(model, TrainingArguments("out", gradient_checkpointing=True), train_dataset=rows).train()
""",
}


def codes(script):
    return [finding.code for finding in check_source(HEAD + script)]


@pytest.mark.parametrize("script", RIGHT.values(), ids=RIGHT)
def test_a_layer_that_trains_with_its_own_forward_is_right(script):
    assert codes(script) == []


@pytest.mark.parametrize("script", WRONG.values(), ids=WRONG)
def test_a_layer_that_trains_with_another_is_not(script):
    assert codes(script) == ["CKPT204"]
