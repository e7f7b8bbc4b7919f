"""Check functions that ask for layers which a model of transformers does not hold, known by its weights or its class."""

from __future__ import annotations

import re
import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.model.known_models import model_families

_HEAD = """\
import torch
from functools import partial
from peft import LoraConfig, get_peft_model
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing, checkpoint_wrapper
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, LlamaConfig, MistralConfig, MistralForCausalLM
from transformers.models.bert.modeling_bert import BertLayer
from transformers.models.gemma.modeling_gemma import GemmaDecoderLayer
from transformers.models.gemma2.modeling_gemma2 import Gemma2DecoderLayer
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.models.mistral.modeling_mistral import MistralDecoderLayer

def enable(model, layer):
    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, layer))
    return model

"""
WRONG = {
    "a helper with the class as an argument": """
        enable(AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3"), LlamaDecoderLayer)
    """,
    "one of two calls of a helper": """
        enable(AutoModelForCausalLM.from_pretrained("gpt2"), LlamaDecoderLayer)
        enable(AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf"), LlamaDecoderLayer)
    """,
    "a name that is set once": """
        NAME = "Qwen/Qwen2.5-0.5B-Instruct"
        model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16).cuda()
        apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, LlamaDecoderLayer))
    """,
    "under an adapter": """
        model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.1")
        model = get_peft_model(model, LoraConfig())
        apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, (LlamaDecoderLayer, BertLayer)))
    """,
    "built from a configuration": """
        model = AutoModelForCausalLM.from_config(LlamaConfig(num_hidden_layers=2))
        apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, MistralDecoderLayer))
    """,
    "the configuration of weights": """
        config = AutoConfig.from_pretrained("mistralai/Mixtral-8x7B-v0.1")
        model = AutoModelForCausalLM.from_config(config)
        apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, LlamaDecoderLayer))
    """,
    "a function that asks": """
        def is_layer(module):
            return isinstance(module, LlamaDecoderLayer)

        apply_activation_checkpointing(AutoModel.from_pretrained("bert-base-uncased"), check_fn=is_layer)
    """,
    "a classifier": """
        from transformers import BertForSequenceClassification, RobertaModel
        from transformers.models.roberta.modeling_roberta import RobertaLayer
        enable(BertForSequenceClassification.from_pretrained("x"), RobertaLayer)
        enable(RobertaModel.from_pretrained("x"), RobertaLayer)
    """,
    "the name of the class": """
        model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3")
        apply_activation_checkpointing(model, check_fn=lambda m: m.__class__.__name__ == "LlamaDecoderLayer")
    """,
    "one of two families": """
        if big:
            model = AutoModelForCausalLM.from_pretrained("mistralai/Mixtral-8x7B-v0.1")
        else:
            model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.1")
        apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, LlamaDecoderLayer))
    """,
}
RIGHT = {
    "the right class": """
        enable(AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3"), MistralDecoderLayer)
        enable(AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf"), LlamaDecoderLayer)
    """,
    "weights of Llama under other names": """
        for name in ():
            pass
        enable(AutoModelForCausalLM.from_pretrained("TinyLlama/TinyLlama-1.1B-Chat-v1.0"), LlamaDecoderLayer)
        enable(AutoModelForCausalLM.from_pretrained("HuggingFaceTB/SmolLM2-135M"), LlamaDecoderLayer)
        enable(AutoModelForCausalLM.from_pretrained("deepseek-ai/DeepSeek-R1-Distill-Llama-8B"), LlamaDecoderLayer)
        enable(AutoModelForCausalLM.from_pretrained("HuggingFaceH4/zephyr-7b-beta"), MistralDecoderLayer)
    """,
    "weights that are not known": """
        enable(AutoModelForCausalLM.from_pretrained("mistralai/Pixtral-12B-2409"), LlamaDecoderLayer)
        enable(AutoModelForCausalLM.from_pretrained("someone/mistral-7b-merge"), LlamaDecoderLayer)
        enable(AutoModelForCausalLM.from_pretrained("./mistral"), LlamaDecoderLayer)
        enable(AutoModelForCausalLM.from_pretrained("mistralai/Mistral-Small-3.1-24B-Base-2503"), LlamaDecoderLayer)
    """,
    "models that hold another one": """
        from transformers import LlavaForConditionalGeneration, VisionEncoderDecoderModel
        enable(LlavaForConditionalGeneration.from_pretrained("x"), LlamaDecoderLayer)
        enable(VisionEncoderDecoderModel.from_pretrained("x"), BertLayer)
    """,
    "code of its own": """
        model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3", trust_remote_code=True)
        enable(model, LlamaDecoderLayer)
        enable(AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3", **options), LlamaDecoderLayer)
    """,
    "another configuration": """
        model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3", config=LlamaConfig())
        enable(model, LlamaDecoderLayer)
        enable(AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3", config=config), LlamaDecoderLayer)
    """,
    "one of two families has them": """
        name = "mistralai/Mistral-7B-v0.3" if small else "meta-llama/Llama-2-7b-hf"
        apply_activation_checkpointing(
            AutoModelForCausalLM.from_pretrained(name), check_fn=lambda m: isinstance(m, LlamaDecoderLayer)
        )
    """,
    "an option with a default": """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--model", default="mistralai/Mistral-7B-v0.3")
        args = parser.parse_args()
        enable(AutoModelForCausalLM.from_pretrained(args.model), LlamaDecoderLayer)
    """,
    "a list of classes": """
        model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3")
        apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, (LlamaDecoderLayer, MistralDecoderLayer)))
        apply_activation_checkpointing(model, check_fn=lambda m: type(m).__name__ in ("LlamaDecoderLayer", other))
        apply_activation_checkpointing(model, check_fn=lambda m: "DecoderLayer" in type(m).__name__)
        apply_activation_checkpointing(model, check_fn=lambda m: type(m).__name__ != "LlamaDecoderLayer")
    """,
}


def _found(code):
    return [finding.code for finding in check_source(_HEAD + textwrap.dedent(code)) if finding.code != "CKPT501"]


@pytest.mark.parametrize("code", WRONG.values(), ids=WRONG.keys())
def test_layers_of_another_family_are_found(code):
    assert _found(code) == ["CKPT208"]


@pytest.mark.parametrize("code", RIGHT.values(), ids=RIGHT.keys())
def test_layers_that_the_model_may_hold_are_not(code):
    assert _found(code) == []


def test_families_are_those_of_transformers():
    transformers = pytest.importorskip("transformers")
    for family, weights in model_families._WEIGHTS.items():
        assert hasattr(transformers, f"{family}Config"), family
        re.compile(weights)
