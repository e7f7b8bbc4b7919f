"""A certificate names the first layer, operator and cause of a wrong step, and calls right ones bitwise equal."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hf_ckpt.lint.catalogue.rules import find_rule

import hf_ckpt
from hf_ckpt.certificate.certificate import Verdict

from ..models import ARCHITECTURES, build, build_encoder, fingerprint
from .hazards import HAZARDS, IDS, Hazard

if TYPE_CHECKING:
    from ..forked import Forked


@pytest.mark.parametrize("hazard", HAZARDS, ids=lambda hazard: hazard.name)
def test_names_layer_operator_and_cause(hazard: Hazard) -> None:
    model, loss = hazard.build()
    found = hf_ckpt.verify(model, loss)
    assert found.verdict is Verdict.DIFFERENT, str(found)
    culprit = found.culprit
    assert culprit is not None, str(found)
    assert (culprit.rule.code if culprit.rule else None) == hazard.code, str(found)
    assert hazard.layer in culprit.layer, str(found)
    assert hazard.op in culprit.op, str(found)
    if hazard.line is not None:
        assert culprit.place is not None, str(found)
        assert culprit.place.line == hazard.line, str(found)
    if culprit.rule is not None:
        assert find_rule(culprit.rule.code).name == culprit.rule.name


def test_routing_that_is_decided_anew_is_said() -> None:
    model, loss = next(hazard for hazard in HAZARDS if hazard.name == "routing_decided_anew").build()
    assert "experts that the router picks after it are picked anew" in str(hf_ckpt.verify(model, loss))


_QUICK = {("gpt2", "full"), ("mixtral", "full"), ("llama", "budget=0.5")}
_HONEST = [
    pytest.param(name, policy, marks=() if (name, policy) in _QUICK else pytest.mark.slow)
    for name in ARCHITECTURES
    for policy in ("full", "balanced", "budget=0.5")
]


@pytest.mark.parametrize(("name", "policy"), _HONEST)
def test_honest_models_are_bitwise_equal(name: str, policy: str) -> None:
    model = build(name).train()
    found = hf_ckpt.verify(model, lambda: model(input_ids=IDS, labels=IDS).loss, policy)
    assert str(found).startswith("bitwise equal: the loss and "), str(found)
    assert found.report is not None
    assert any(layer.replays for layer in found.report.layers)


@pytest.mark.parametrize("reentrant", [False, True])
def test_transformers_own_switch_is_bitwise_equal(reentrant: bool) -> None:
    model = build("gpt2").train()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    found = hf_ckpt.verify(model, lambda: model(input_ids=IDS, labels=IDS).loss)
    assert found.holds, str(found)


@pytest.mark.parametrize(
    ("policy", "why"), [("mlp(3)", "MLPs run in 3 chunks"), ("head(3)+mlp(2)", "the loss is summed in 3 chunks")]
)
def test_chunks_are_named_before_anything_else(policy: str, why: str) -> None:
    model = build("llama").train()
    found = hf_ckpt.verify(model, lambda: model(input_ids=IDS, labels=IDS).loss, policy)
    assert found.verdict is Verdict.DIFFERENT, str(found)
    assert found.culprit is not None
    assert why in found.culprit.cause


def test_torchs_engine_on_an_encoder_is_bitwise_equal() -> None:
    model = build_encoder().train()
    found = hf_ckpt.verify(model, lambda: model(input_ids=IDS, labels=IDS).loss, "full", engine="torch")
    assert found.holds, str(found)


@pytest.mark.slow
def test_a_sharded_model_is_told_on_every_rank(forked: Forked) -> None:
    for rank in forked.run_ranks("-m", "tests.certificate.sharded", folder=Path(__file__).parents[2]):
        assert "CKPT108 first in `transformer.h.0.attn` at aten.bernoulli_" in rank.stdout, rank.stderr


def test_a_step_that_differs_from_itself_is_not_proven() -> None:
    model, generator = build("qwen3").train(), torch.Generator()
    found = hf_ckpt.verify(model, lambda: model(input_ids=IDS, labels=IDS).loss * torch.rand((), generator=generator))
    assert found.verdict is Verdict.UNPROVEN
    assert "two runs without checkpointing differ already" in str(found)


def test_gradients_that_are_sparse_are_compared() -> None:
    table = torch.nn.Embedding(int(IDS.max()) + 1, 8, sparse=True)
    found = hf_ckpt.verify(table, lambda: table(IDS).sum())
    assert str(found) == "bitwise equal: the loss and 1 gradients"


def test_no_memory_on_one_of_several_ranks_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others wait in that step: a rank that goes on alone would answer it with gradients of another one."""

    def full() -> torch.Tensor:
        raise torch.OutOfMemoryError("out of memory")

    model = build("llama").train()
    assert "does not fit into memory" in str(hf_ckpt.verify(model, full, "full"))
    monkeypatch.setattr("hf_ckpt.certificate.certify.Ranks", lambda *_, **__: SimpleNamespace(together=True))
    with pytest.raises(torch.OutOfMemoryError):
        hf_ckpt.verify(model, full, "full")


def test_everything_is_brought_back() -> None:
    model, loss = next(hazard for hazard in HAZARDS if hazard.name == "batch_norm").build()
    loss().backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    values = {name: None if g is None else g.clone() for name, g in gradients.items()}
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    before, numbers = fingerprint(model), torch.get_rng_state()
    hf_ckpt.verify(model, loss, "none")
    assert fingerprint(model) == before
    assert torch.equal(torch.get_rng_state(), numbers)
    for name, parameter in model.named_parameters():
        assert parameter.grad is gradients[name]
        assert values[name] is None or torch.equal(parameter.grad, values[name])
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, buffers[name])


def test_a_loss_that_raises_leaves_the_model_as_it_was() -> None:
    model = build("llama").train()
    before = fingerprint(model)

    def fails() -> Any:
        model(input_ids=IDS, labels=IDS)
        raise ValueError("not this loss")

    with pytest.raises(ValueError, match="not this loss"):
        hf_ckpt.verify(model, fails, "full")
    assert fingerprint(model) == before
