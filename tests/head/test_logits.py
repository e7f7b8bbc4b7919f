"""What the graph of a loss says of its logits, against the bytes that a backward makes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

import hf_ckpt
from hf_ckpt.head.logits import LogitBytes, logit_bytes
from hf_ckpt.measuring.peak import PeakMeter
from hf_ckpt.planner.budget import ShareBudget

VOCABULARY, ROWS, LENGTH = 4096, 2, 64
SMALL = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "use_cache": False}
KINDS: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaForCausalLM, LlamaConfig(**SMALL, vocab_size=VOCABULARY)),
    "gemma2": (Gemma2ForCausalLM, Gemma2Config(**SMALL, num_key_value_heads=1, head_dim=8, vocab_size=VOCABULARY)),
    "t5": (
        T5ForConditionalGeneration,
        T5Config(d_model=8, d_ff=8, num_layers=1, num_heads=1, d_kv=8, vocab_size=VOCABULARY, decoder_start_token_id=0),
    ),
    "bart": (
        BartForConditionalGeneration,
        BartConfig(
            d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1, decoder_attention_heads=1,
            encoder_ffn_dim=8, decoder_ffn_dim=8, vocab_size=VOCABULARY,
        ),
    ),
}  # fmt: skip


def built(kind: str, dtype: torch.dtype) -> Any:
    model, config = KINDS[kind]
    return model._from_config(config, dtype=dtype).train()


def batch() -> dict[str, torch.Tensor]:
    ids = torch.arange(ROWS * LENGTH).reshape(ROWS, LENGTH)
    return {"input_ids": ids, "labels": ids}


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_backward_makes_beside_what_is_saved(kind: str, dtype: torch.dtype, autocast: bool) -> None:
    model = built(kind, dtype)
    with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
        output = model(**batch())
    found = logit_bytes(output, ROWS * LENGTH, VOCABULARY)
    assert found is not None
    loss = output.loss
    del output
    with PeakMeter(torch.device("cpu")) as meter:
        loss.backward()
    made = meter.peak_bytes / (ROWS * LENGTH * VOCABULARY)
    assert found.saved + made == pytest.approx(found.peak, rel=0.05)


def test_nothing_is_known_without_a_graph_of_logits() -> None:
    model = built("llama", torch.float32)
    with torch.no_grad():
        output = model(**batch())
    assert logit_bytes(output, ROWS * LENGTH, VOCABULARY) is None
    assert logit_bytes(model(**batch()), 0, VOCABULARY) is None
    assert logit_bytes(model(**batch()), ROWS * LENGTH, VOCABULARY + 1) is None


def test_a_loss_for_all_tokens_but_the_last() -> None:
    model = built("llama", torch.float32)
    logits = model(input_ids=batch()["input_ids"]).logits[:, :-1]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch()["labels"][:, 1:].flatten())
    assert logit_bytes(loss, ROWS * LENGTH, VOCABULARY) == LogitBytes(4, 12, weights=4)


@pytest.mark.parametrize(("policy", "chunks"), [("budget=0.9", 1), ("budget=100GiB", 1), ("budget=100GiB+head(4)", 4)])
def test_plans_count_capped_logits(policy: str, chunks: int) -> None:
    model = built("gemma2", torch.bfloat16)
    handle = hf_ckpt.apply(model, policy)
    for _ in range(3):
        model(**batch()).loss.backward()
    assert handle.planner is not None
    assert handle.planner.head.per_logit == LogitBytes(6, 14, weights=2)
    assert handle.planner.current is not None
    head = handle.planner.current.solution.head
    assert head.chunks == chunks
    of_one = ROWS * LENGTH * VOCABULARY * 14 / chunks
    assert of_one <= head.nbytes <= 1.2 * of_one  # gradients of weights and of hidden states besides
    assert isinstance(handle.planner.budget, ShareBudget) == ("0.9" in policy)
    handle.restore()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [4, 12, 512])
def test_the_weight_of_the_embeddings_is_no_logits(rows: int, dtype: torch.dtype) -> None:
    """Transposed it has the shape of logits, of as many tokens as it is wide."""
    weight = torch.nn.Parameter(torch.randn(VOCABULARY, 32))
    hidden = torch.randn(rows, 32, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16):
        logits = torch.nn.functional.linear(hidden, weight).float()
        loss = torch.nn.functional.cross_entropy(logits, torch.zeros(rows, dtype=torch.int64))
    assert logit_bytes(loss, rows, VOCABULARY) == LogitBytes(4, 12, weights=dtype.itemsize)
