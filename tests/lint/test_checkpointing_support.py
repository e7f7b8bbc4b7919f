"""Models of transformers whose class supports no checkpointing: the table, and what CKPT308 makes of it."""

from __future__ import annotations

import re
import textwrap
from importlib.metadata import version

import checkpointing_support
import pytest
from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.model.known_models.checkpointing_support import WEIGHTS, names_not_checkpointed
from hf_ckpt.lint.model.known_models.not_checkpointed import CLASSES
from hf_ckpt.lint.model.needs import one_of
from hf_ckpt.lint.prefilter.words import Words
from hypothesis import given, settings
from hypothesis.strategies import from_regex

_HEAD = """\
import sys
from transformers import (
    AlbertConfig, AlbertModel, AlbertPreTrainedModel, AutoConfig, AutoModel, AutoModelForMaskedLM, LlamaForCausalLM,
    MPNetForMaskedLM, ResNetForImageClassification, Trainer, TrainingArguments,
)
from peft import LoraConfig, get_peft_model

"""
WRONG = {
    "a class": 'AlbertModel.from_pretrained("x").gradient_checkpointing_enable()',
    "a configuration": "AlbertModel(AlbertConfig()).gradient_checkpointing_enable({'use_reentrant': False})",
    "an Auto class with weights": """
        model = AutoModelForMaskedLM.from_pretrained("xlnet/xlnet-base-cased").cuda()
        model.gradient_checkpointing_enable()
    """,
    "an Auto class with a configuration": """
        model = AutoModel.from_config(AlbertConfig(num_hidden_layers=2))
        model.gradient_checkpointing_enable()
    """,
    "the configuration of weights": """
        config = AutoConfig.from_pretrained("albert-base-v2")
        AutoModel.from_config(config).gradient_checkpointing_enable()
    """,
    "under an adapter": """
        model = get_peft_model(AutoModel.from_pretrained("microsoft/mpnet-base"), LoraConfig())
        model.gradient_checkpointing_enable()
    """,
    "a class of the file": """
        class Scorer(AlbertPreTrainedModel):
            def __init__(self, config):
                super().__init__(config)
                self.albert = AlbertModel(config)

        Scorer(AlbertConfig()).gradient_checkpointing_enable()
    """,
    "a part of a module": """
        import torch.nn as nn

        class Retriever(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder = AutoModel.from_pretrained("sentence-transformers/all-mpnet-base-v2")
                self.encoder.gradient_checkpointing_enable()

        Retriever()
    """,
    "whenever the flag is given": """
        model = AlbertModel.from_pretrained("x")
        if "--checkpoint" in sys.argv:
            model.gradient_checkpointing_enable()
    """,
    "a Trainer": """
        model = ResNetForImageClassification.from_pretrained("x")
        args = TrainingArguments("out", bf16=True, gradient_checkpointing=True)
        Trainer(model, args).train()
    """,
    "a Trainer with an adapter": """
        model = get_peft_model(MPNetForMaskedLM.from_pretrained("x"), LoraConfig())
        Trainer(model=model, args=TrainingArguments("out", activation_checkpointing=True)).train()
    """,
}
RIGHT = {
    "another class": 'LlamaForCausalLM.from_pretrained("x").gradient_checkpointing_enable()',
    "other weights": 'AutoModel.from_pretrained("google-bert/bert-base-uncased").gradient_checkpointing_enable()',
    "weights of a user": 'AutoModel.from_pretrained("me/albert-base-v2").gradient_checkpointing_enable()',
    "weights that a flag names": "AutoModel.from_pretrained(sys.argv[1]).gradient_checkpointing_enable()",
    "code of the weights": """
        model = AutoModel.from_pretrained("albert-base-v2", trust_remote_code=True)
        model.gradient_checkpointing_enable()
    """,
    "one of two models": """
        model = AlbertModel.from_pretrained("x") if len(sys.argv) > 1 else LlamaForCausalLM.from_pretrained("y")
        model.gradient_checkpointing_enable()
    """,
    "one of two functions' models": """
        def enable(build):
            model = AlbertModel.from_pretrained("x")
            if len(sys.argv) > 1:
                model = build()
            model.gradient_checkpointing_enable()
    """,
    "a Trainer of one of two models": """
        model = AlbertModel.from_pretrained("x") if len(sys.argv) > 1 else LlamaForCausalLM.from_pretrained("y")
        Trainer(model, TrainingArguments("out", gradient_checkpointing=True)).train()
    """,
    "arguments of one of two": """
        args = TrainingArguments("out", gradient_checkpointing=True) if sys.argv[1:] else TrainingArguments("out")
        Trainer(AlbertModel.from_pretrained("x"), args).train()
    """,
    "asked first": """
        model = AlbertModel.from_pretrained("x")
        if model.supports_gradient_checkpointing:
            model.gradient_checkpointing_enable()
    """,
    "caught": """
        model = AlbertModel.from_pretrained("x")
        try:
            model.gradient_checkpointing_enable()
        except ValueError:
            print("no checkpointing")
    """,
    "a class of the file that supports it": """
        class Scorer(AlbertPreTrainedModel):
            supports_gradient_checkpointing = True

        Scorer(AlbertConfig()).gradient_checkpointing_enable()
    """,
    "a class of the file with the method": """
        class Scorer(AlbertPreTrainedModel):
            def gradient_checkpointing_enable(self, kwargs=None):
                self.checkpointing = True

        model = Scorer(AlbertConfig())
        model.gradient_checkpointing_enable()
        Trainer(model, TrainingArguments("out", gradient_checkpointing=True)).train()
    """,
    "a Trainer that does not checkpoint": """
        Trainer(AlbertModel.from_pretrained("x"), TrainingArguments("out", gradient_checkpointing=False)).train()
    """,
    "a Trainer with a switch of the user": """
        args = TrainingArguments("out", gradient_checkpointing=len(sys.argv) > 1)
        Trainer(AlbertModel.from_pretrained("x"), args).train()
    """,
    "switched off": """
        AlbertModel.from_pretrained("x").gradient_checkpointing_disable()
    """,
}


def _is_named(name: str) -> bool:
    return Words(name).contains(one_of(names_not_checkpointed()))


def test_the_prefilter_knows_every_class_and_configuration():
    assert [name for name in (*CLASSES, *(f"{family}Config" for family in WEIGHTS)) if not _is_named(name)] == []
    assert not _is_named("LlamaForCausalLM AutoModelForCausalLM google-bert/bert-base-uncased")


@pytest.mark.parametrize("pattern", WEIGHTS.values(), ids=WEIGHTS)
def test_the_prefilter_knows_all_weights(pattern):
    @settings(max_examples=20)
    @given(from_regex(re.compile(pattern, re.ASCII), fullmatch=True))
    def check(name):
        assert _is_named(name)

    check()


def found(code: str) -> list[str]:
    return [it.code for it in check_source(_HEAD + textwrap.dedent(code)) if it.code == "CKPT308"]


@pytest.mark.parametrize("code", WRONG.values(), ids=WRONG)
def test_checkpointing_that_raises_is_found(code):
    assert found(code) == ["CKPT308"]


@pytest.mark.parametrize("code", RIGHT.values(), ids=RIGHT)
def test_right_or_open_code_is_silent(code):
    assert found(code) == []


def test_the_finding_names_the_releases_that_the_table_holds_for():
    assert [it.versions for it in check_source(_HEAD + WRONG["a class"])] == ["transformers>=4.36"]
    assert check_source(_HEAD + WRONG["a class"], versions={"transformers": ">=4.30,<4.36"}) == []


def test_the_table_is_up_to_date():
    made = re.search(r"transformers (\d[\d.]+\d)", checkpointing_support.TABLE.read_text("utf-8"))
    assert made is not None
    if version("transformers") != made[1]:
        pytest.skip(f"the table is that of transformers {made[1]}")
    hint = "run `python -m tests.lint.checkpointing_support`"
    assert set(checkpointing_support.unsupported()) == CLASSES, hint


@pytest.mark.parametrize("family", WEIGHTS)
def test_every_auto_class_makes_a_model_without_support(family):
    """Whatever Auto class loads the weights: none of the models of their configuration is checkpointed."""
    from transformers.models.auto import configuration_auto, modeling_auto

    type_ = next(name for name, kind in configuration_auto.CONFIG_MAPPING_NAMES.items() if kind == f"{family}Config")
    tables = [table for name, table in vars(modeling_auto).items() if re.fullmatch(r"MODEL_\w+_MAPPING_NAMES", name)]
    made = [table[type_] for table in tables if type_ in table]
    kinds = {kind for entry in made for kind in (entry if isinstance(entry, tuple) else (entry,))}
    kinds -= {None, "TimmBackbone"}
    assert kinds
    assert kinds <= CLASSES


@pytest.mark.slow
def test_classes_of_the_table_support_no_checkpointing():
    import transformers

    for name in sorted(CLASSES):
        try:
            kind = getattr(transformers, name)
            assert not kind.supports_gradient_checkpointing, name
        except ImportError:  # a class that needs a library which is not installed
            continue
