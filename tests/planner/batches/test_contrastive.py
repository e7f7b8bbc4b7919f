"""Losses of several forwards, as people write them: within a byte budget at the real peak, and bitwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import cross_entropy, kl_div, log_softmax, logsigmoid, nll_loss, normalize
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification, BertConfig, LlamaConfig

from hf_ckpt.measuring.peak import PeakMeter
from hf_ckpt.planner.batches.beside_layers import saved_beside_layers

from ..planner_models import conduct, nothing_used

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 97}
IDS = torch.arange(8 * 48).reshape(8, 48) % 97


def encoder() -> torch.nn.Module:
    return AutoModel.from_config(BertConfig(**SIZES, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1))


def classifier() -> torch.nn.Module:
    sizes = SIZES | {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    return AutoModelForSequenceClassification.from_config(BertConfig(**sizes))


def decoder() -> torch.nn.Module:
    return AutoModelForCausalLM.from_config(LlamaConfig(**SIZES, num_key_value_heads=2, use_cache=False))


def embed(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    return normalize(model(input_ids=ids).last_hidden_state.mean(1), dim=-1)


def mnrl(model: torch.nn.Module) -> None:
    """MultipleNegativesRankingLoss of sentence-transformers: a forward a column."""
    queries, documents, negatives = embed(model, IDS[:4, :24]), embed(model, IDS[4:]), embed(model, IDS[2:6])
    scores = 20 * queries @ torch.cat([documents, negatives]).T
    cross_entropy(scores, torch.arange(len(scores))).backward()


def r_drop(model: torch.nn.Module) -> None:
    """Two forwards of the same batch, told apart by dropout."""
    one, two = (log_softmax(model(input_ids=IDS).logits, dim=-1) for _ in range(2))
    divergence = kl_div(one, two, log_target=True, reduction="batchmean") + kl_div(
        two, one, log_target=True, reduction="batchmean"
    )
    labels = torch.arange(8) % 2
    (nll_loss(one, labels) + nll_loss(two, labels) + divergence).backward()


def grad_cache(model: torch.nn.Module) -> None:
    """Embeddings without gradients, their gradients, then a forward and a backward a chunk."""
    states, embeddings = [], []
    for chunk in IDS.split(2):
        states.append(torch.get_rng_state())
        with torch.no_grad():
            embeddings.append(embed(model, chunk).requires_grad_())
    queries, documents = torch.cat(embeddings).chunk(2)
    cross_entropy(20 * queries @ documents.T, torch.arange(len(queries))).backward()
    for chunk, state, embedding in zip(IDS.split(2), states, embeddings, strict=True):
        torch.set_rng_state(state)
        embed(model, chunk).backward(embedding.grad)


def dpo(model: torch.nn.Module) -> None:
    """Chosen and rejected answers in two forwards, the reference in two more without gradients."""

    def log_likelihood(ids: torch.Tensor) -> torch.Tensor:
        scores = log_softmax(model(input_ids=ids).logits[:, :-1], dim=-1)
        return scores.gather(-1, ids[:, 1:, None]).sum((1, 2))

    chosen, rejected = log_likelihood(IDS[:4]), log_likelihood(IDS[4:])
    with torch.no_grad():
        reference = 0.9 * (log_likelihood(IDS[:4]) - log_likelihood(IDS[4:]))
    (-logsigmoid(0.1 * (chosen - rejected - reference)).mean()).backward()


def train(model: torch.nn.Module, loss: Callable[[torch.nn.Module], None]) -> tuple[int, list[torch.Tensor]]:
    """The bytes at the peak of a step, and its gradients."""
    model.zero_grad(set_to_none=False)
    torch.manual_seed(0)
    with PeakMeter(torch.device("cpu")) as meter:
        loss(model)
    return meter.peak_bytes, [p.grad.clone() for p in model.parameters() if p.grad is not None]


def with_gradients(build: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    torch.manual_seed(0)
    model = build().train()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return model


@pytest.mark.parametrize(
    ("build", "loss", "share"),
    [(encoder, mnrl, 0.6), (classifier, r_drop, 0.6), (encoder, grad_cache, 0.8), (decoder, dpo, 0.8)],
)
def test_the_real_peak_stays_within_the_budget_and_no_bit_changes(build, loss, share) -> None:
    plain_peak, plain = train(with_gradients(build), loss)
    budget = int(share * plain_peak)
    model = with_gradients(build)
    planner = conduct(model, f"{budget}B", memory=nothing_used())
    for _ in range(3):
        peak, gradients = train(model, loss)
        assert peak <= budget
        assert all(map(torch.equal, gradients, plain))
    assert planner.current is not None
    assert peak > 0.9 * budget


def test_what_layers_save_through_hooks_and_what_a_head_saves_is_not_beside_them() -> None:
    model = torch.nn.Linear(16, 16)
    before = model(torch.ones(4, 16)).exp()  # its result, and the input of the linear layer
    with saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        layer = before.sin().exp()
    logits = torch.cat(
        [layer, layer.tanh()], dim=1
    ).cos()  # the tanh's result, and the cosine's input, as wide as a row
    row = 4 * 16 * logits.itemsize
    assert saved_beside_layers(model, {"logits": logits}, vocabulary=None) == 5 * row
    assert saved_beside_layers(model, {"logits": logits}, vocabulary=32) == 3 * row
