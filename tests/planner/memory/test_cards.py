"""Layers on several cards, one after the other: all is on one of them, and nothing on two."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig

from hf_ckpt.errors import ForecastError
from hf_ckpt.planner.memory.cards import placed
from hf_ckpt.planner.memory.setup import Setup, standing

CONFIG = LlamaConfig(
    hidden_size=64, intermediate_size=128, num_attention_heads=4, num_hidden_layers=6, vocab_size=96,
    tie_word_embeddings=False,
)  # fmt: skip
CAPACITY = 1 << 20


def model(*, lora: bool = False, tied: bool = False) -> torch.nn.Module:
    with torch.device("meta"):
        config = LlamaConfig(**{**CONFIG.to_dict(), "tie_word_embeddings": tied})
        found = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        return get_peft_model(found, LoraConfig(r=4, target_modules="all-linear")) if lora else found


@pytest.mark.parametrize("gpus", [2, 3])
@pytest.mark.parametrize("lora", [False, True])
def test_every_layer_and_gradient_is_on_one_card(gpus: int, lora: bool) -> None:
    whole = model(lora=lora)
    layers = (whole.get_base_model() if lora else whole).model.layers
    setup = Setup("adamw_torch_fused", gpus, in_turn=True)
    cards = placed(whole, layers, setup, CAPACITY)
    alone = standing(whole, layers, Setup("adamw_torch_fused"))
    assert [card.first for card in cards] == [0, *(card.end for card in cards[:-1])]
    assert cards[-1].end == len(layers)
    assert [card.has_head for card in cards] == [False] * (len(cards) - 1) + [True]
    assert sum(card.gradients for card in cards) == alone.gradients
    assert sum(card.head_gradients for card in cards) == alone.head_gradients
    assert [card.late_gradients for card in cards] == [alone.late_gradients] + [0] * (len(cards) - 1)
    parameters = sum(p.numel() * p.element_size() for p in whole.parameters())
    assert sum(card.standing for card in cards) == parameters + alone.optimizer


def test_tied_embeddings_compute_the_loss_on_the_first_card() -> None:
    whole = model(tied=True)
    cards = placed(whole, whole.model.layers, Setup("adamw_torch_fused", 2, in_turn=True), CAPACITY)
    assert [card.has_head for card in cards] == [True, False]


def test_weights_in_four_bit_are_placed_by_what_they_take() -> None:
    whole = model(lora=True)
    layers = whole.get_base_model().model.layers
    setups = [Setup("adamw_torch_fused", 2, in_turn=True, four_bit=packed) for packed in (False, True)]
    plain, packed = (sum(card.standing for card in placed(whole, layers, setup, CAPACITY)) for setup in setups)
    assert packed < plain


def test_cards_that_are_too_small_are_an_error() -> None:
    whole = model()
    with pytest.raises(ForecastError, match="the weights do not fit 2 cards"):
        placed(whole, whole.model.layers, Setup("adamw_torch_fused", 2, in_turn=True), 100_000)
