"""Training arguments that their own methods set: what `set_training` switches on or off is what the Trainer does."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

def configure(args, **more):
    return args.set_training(learning_rate=1e-4, **more)

def main(dataset, switch, options):
    model = AutoModelForCausalLM.from_pretrained("base")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={{"use_reentrant": True}})
    {}
    Trainer(model, args, train_dataset=dataset).train()
"""
#: How the Trainer's checkpointing, which overrides the model's, is switched on.
ON = {
    "same name": ('args = TrainingArguments("out")', "args = args.set_training(gradient_checkpointing=True)"),
    "statement": ('args = TrainingArguments("out")', "args.set_training(batch_size=2, activation_checkpointing=True)"),
    "chain": ('args = TrainingArguments("out").set_training(activation_checkpointing=True).set_save(steps=10)',),
    "chain before": (
        'args = TrainingArguments("out").set_logging(steps=5).set_training(activation_checkpointing=True)',
    ),
    "by position": ('args = TrainingArguments("out").set_training(1e-4, 2, 0.0, 1, -1, 1, 42, True)',),
    "helper": ('args = configure(TrainingArguments("out"), activation_checkpointing=True)',),
    "written after": ('args = TrainingArguments("out").set_training()', "args.activation_checkpointing = True"),
    "another method": (
        'args = TrainingArguments("out", activation_checkpointing=True).set_optimizer(name="adamw_torch")',
    ),
}
OFF = {
    "by default": ('args = TrainingArguments("out", activation_checkpointing=True).set_training(batch_size=2)',),
    "statement": ('args = TrainingArguments("out", activation_checkpointing=True)', "args.set_training(1e-4)"),
    "said": ('args = TrainingArguments("out").set_training(activation_checkpointing=False)',),
    "helper": ('args = configure(TrainingArguments("out", activation_checkpointing=True))',),
    "never": ('args = TrainingArguments("out").set_save(steps=10)',),
    "open": ('args = TrainingArguments("out").set_training(activation_checkpointing=switch)',),
    "open options": ('args = TrainingArguments("out").set_training(**options)',),
    "the same": (
        'args = TrainingArguments("out", activation_checkpointing_kwargs={"use_reentrant": True})',
        "args.set_training(activation_checkpointing=True)",
    ),
}


def codes(lines):
    return [it.code for it in check_source(SCRIPT.format("\n    ".join(lines)), "t.py")]


@pytest.mark.parametrize("way", ON)
def test_what_is_switched_on_overrides_the_model(way):
    assert "CKPT202" in codes(ON[way])


@pytest.mark.parametrize("way", OFF)
def test_what_is_off_or_open_overrides_nothing(way):
    assert "CKPT202" not in codes(OFF[way])
