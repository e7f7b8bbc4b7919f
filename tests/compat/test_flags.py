"""A flag that says activation checkpointing is on is told from a switch that was turned."""

from __future__ import annotations

from torch import nn
from transformers import LlamaConfig, PreTrainedModel

from hf_ckpt.compat.checkpointing import flags_on

from ..models import build


class OlderEncoder(PreTrainedModel):
    """Modeling code that asks its own attribute, as before transformers had layers that do."""

    config_class = LlamaConfig
    supports_gradient_checkpointing = True

    def __init__(self) -> None:
        super().__init__(LlamaConfig())
        self.layer = nn.Linear(2, 2)
        self.gradient_checkpointing = False


def test_a_switch_that_was_turned_is_no_flag() -> None:
    model = OlderEncoder()
    model.gradient_checkpointing_enable()
    assert model.gradient_checkpointing
    assert flags_on(model) == []


def test_an_assignment_is_a_flag() -> None:
    older, llama = OlderEncoder(), build("llama")
    older.gradient_checkpointing = True
    llama.config.gradient_checkpointing = True
    assert flags_on(older) == ["OlderEncoder.gradient_checkpointing"]
    assert "config.gradient_checkpointing" in flags_on(llama)
