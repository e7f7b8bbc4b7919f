"""Adapters of models that take pictures or sound, under the reentrant variant: nothing that goes in needs a gradient."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.api import check_source

HEAD = """
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import (
    AutoModelForSpeechSeq2Seq, BitsAndBytesConfig, Seq2SeqTrainer, Seq2SeqTrainingArguments,
    VideoMAEForVideoClassification, Wav2Vec2ForCTC, WhisperForConditionalGeneration,
)

lora = LoraConfig(r=8, target_modules=["q_proj", "v_proj"])
"""
_ADAPT = "model = get_peft_model({}, lora)\n"
_ENABLE = 'model.gradient_checkpointing_enable({"use_reentrant": True})\n'
_WHISPER = 'WhisperForConditionalGeneration.from_pretrained("mine")'
_TRAIN = (
    'Seq2SeqTrainer(model, Seq2SeqTrainingArguments("out", gradient_checkpointing=True{}), train_dataset=data).train()'
)
_REENTRANT = ', gradient_checkpointing_kwargs={"use_reentrant": True}'
WRONG = {
    "speech": _ADAPT.format(_WHISPER) + _ENABLE,
    "speech by its weights": (
        _ADAPT.format('AutoModelForSpeechSeq2Seq.from_pretrained("openai/whisper-small")') + _ENABLE
    ),
    "speech with a Trainer": _ADAPT.format(_WHISPER) + _TRAIN.format(_REENTRANT),
    "video": _ADAPT.format('VideoMAEForVideoClassification.from_pretrained("mine")') + _ENABLE,
}
RIGHT = {
    "the other variant": _ADAPT.format(_WHISPER) + _TRAIN.format(""),
    "a model that makes a graph itself": _ADAPT.format('Wav2Vec2ForCTC.from_pretrained("mine")') + _ENABLE,
    "a model that is not known": _ADAPT.format('AutoModelForSpeechSeq2Seq.from_pretrained("mine")') + _ENABLE,
    "a hook": (
        f"model = {_WHISPER}\n"
        "model.model.encoder.conv1.register_forward_hook(lambda module, inputs, output: output.requires_grad_(True))\n"
        + _ADAPT.format("model")
        + _ENABLE
    ),
    "prepared": (
        'model = WhisperForConditionalGeneration.from_pretrained("mine", '
        "quantization_config=BitsAndBytesConfig(load_in_8bit=True))\n"
        'model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": True})\n'
        + _ADAPT.format("model")
    ),
}


@pytest.mark.parametrize("code", WRONG.values(), ids=WRONG)
def test_adapters_behind_frozen_inputs_are_found(code: str) -> None:
    assert [it.code for it in check_source(HEAD + code) if it.code != "CKPT501"] == ["CKPT104"]


@pytest.mark.parametrize("code", RIGHT.values(), ids=RIGHT)
def test_adapters_that_get_gradients_are_left_alone(code: str) -> None:
    assert not [it for it in check_source(HEAD + code) if it.code == "CKPT104"]


def test_before_transformers_5_the_default_is_reentrant() -> None:
    code = HEAD + _ADAPT.format(_WHISPER) + _TRAIN.format("")
    found = check_source(code, versions={"transformers": "==4.49.0"})
    assert [it.code for it in found] == ["CKPT104"]
