"""Adapters that feed a KV cache, which checkpointing drops, are refused before anything is touched."""

from __future__ import annotations

import peft
import pytest
import torch
from peft import PromptTuningConfig, get_peft_model

from hf_ckpt import apply
from hf_ckpt.errors import ConflictError, PolicyError

from ..models import build, fingerprint, same, step

_PROMPT = {"task_type": "CAUSAL_LM", "num_virtual_tokens": 4}
CACHED = ["PrefixTuningConfig", *(["CartridgeConfig"] if hasattr(peft, "CartridgeConfig") else [])]


def adapted(config: peft.PeftConfig) -> peft.PeftModel:
    torch.manual_seed(2)
    return get_peft_model(build("llama"), config).train()


@pytest.mark.parametrize("name", CACHED)
@pytest.mark.parametrize("policy", ["full", "attention@first(1)", "budget=0.5"])
def test_a_prefix_is_refused(name: str, policy: str) -> None:
    model = adapted(getattr(peft, name)(**_PROMPT))
    before = fingerprint(model)
    with pytest.raises(ConflictError, match="checkpointing drops the KV cache"):
        apply(model, policy)
    assert fingerprint(model) == before


@pytest.mark.parametrize("name", CACHED)
def test_a_prefix_trains_under_none(name: str) -> None:
    model = adapted(getattr(peft, name)(**_PROMPT))
    expected = step(model)
    apply(model, "none")
    assert same(step(model), expected)


def test_a_prompt_is_no_prefix() -> None:
    model = adapted(PromptTuningConfig(**_PROMPT))
    expected = step(model)
    apply(model, "full")
    assert same(step(model), expected)


def test_an_unknown_engine_is_one_sentence() -> None:
    with pytest.raises(PolicyError, match="there is no engine 'foo': use `traced` or `torch`"):
        apply(build("llama"), "full", engine="foo")
