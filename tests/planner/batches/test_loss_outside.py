"""Losses that never build logits are not charged for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig
from transformers.trainer_pt_utils import LabelSmoother

from hf_ckpt.measuring.peak import PeakMeter

from ..planner_models import conduct, nothing_used

if TYPE_CHECKING:
    from collections.abc import Callable

VOCABULARY = 4096
IDS = torch.arange(4 * 48).reshape(4, 48)
CONFIG = LlamaConfig(
    num_hidden_layers=3, hidden_size=32, intermediate_size=64, num_attention_heads=2, vocab_size=VOCABULARY,
    use_cache=False,
)  # fmt: skip


class FusedLoss(torch.autograd.Function):
    """As Liger's: gradients are made in the forward, a few rows of logits at a time."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        of_hidden, of_weight, total = torch.empty_like(hidden), torch.zeros_like(weight), torch.zeros(())
        for rows in torch.arange(len(labels)).split(8):
            with torch.enable_grad():
                chunk, copy = hidden[rows].detach().requires_grad_(), weight.detach().requires_grad_()
                loss = cross_entropy(chunk @ copy.T, labels[rows], reduction="sum") / len(labels)
                of_hidden[rows], added = torch.autograd.grad(loss, (chunk, copy))
            of_weight += added
            total += loss.detach()
        ctx.save_for_backward(of_hidden, of_weight)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        of_hidden, of_weight = ctx.saved_tensors
        return of_hidden * gradient, of_weight * gradient, None


class Fused(type(AutoModelForCausalLM.from_config(CONFIG))):  # type: ignore[misc]
    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.model(input_ids=input_ids).last_hidden_state
        return {"loss": FusedLoss.apply(hidden.flatten(0, 1), self.lm_head.weight, labels.flatten())}


def train(model: torch.nn.Module) -> int:
    model.zero_grad(set_to_none=False)
    with PeakMeter(torch.device("cpu")) as meter:
        model(input_ids=IDS, labels=IDS)["loss"].backward()
    return meter.peak_bytes


def with_gradients() -> torch.nn.Module:
    torch.manual_seed(0)
    model = Fused(CONFIG).train()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return model


def own_loss(model: Any) -> torch.Tensor:
    loss: torch.Tensor = model(input_ids=IDS, labels=IDS).loss
    return loss


def computed_outside(model: Any) -> torch.Tensor:
    logits = model(input_ids=IDS).logits[:, :-1]
    return cross_entropy(logits.flatten(0, 1), IDS[:, 1:].flatten())


def smoothed(model: Any) -> torch.Tensor:
    return LabelSmoother(0.1)(model(input_ids=IDS), IDS, shift_labels=True)


@pytest.mark.parametrize(("loss", "per_logit"), [(own_loss, 12), (computed_outside, 12), (smoothed, 16)])
def test_the_planned_head_is_what_the_loss_takes(loss: Callable[[Any], torch.Tensor], per_logit: int) -> None:
    """The peak of a plain step, less what layers and embeddings hold then, within 5 %."""
    model = AutoModelForCausalLM.from_config(CONFIG).train()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with PeakMeter(torch.device("cpu")) as meter:
        loss(model).backward()
    planner = conduct(model, f"{3 * meter.peak_bytes}B", memory=nothing_used())
    planner.head.outside_bytes_per_logit = per_logit
    for _ in range(2):
        model.zero_grad(set_to_none=False)
        loss(model).backward()
    assert planner.current is not None
    solution = planner.current.solution
    assert solution.head.chunks == 1
    counted = meter.peak_bytes - solution.predicted.held - planner.surroundings.beside.nbytes
    assert abs(solution.head.nbytes - counted) <= 0.05 * counted


@pytest.mark.parametrize("budget", ["0.5", "1GiB"])
def test_what_embeddings_save_is_alive_under_a_share_too(budget: str) -> None:
    config = GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=VOCABULARY, use_cache=False)
    model = AutoModelForCausalLM.from_config(config).train()
    planner = conduct(model, budget, memory=nothing_used())
    for _ in range(3):
        own_loss(model).backward()
    (learnt,) = planner.learning.measured.values()
    assert 0 < learnt.problem.outside <= 8 * IDS.numel() * config.n_embd
    assert planner.current is not None
    assert planner.current.solution.predicted.peak >= planner.current.solution.head.nbytes + learnt.problem.outside


def test_a_fused_loss_leaves_its_room_to_the_layers() -> None:
    plain = train(with_gradients())
    logits = 12 * IDS.numel() * VOCABULARY
    assert plain < logits
    model = with_gradients()
    planner = conduct(model, f"{int(1.2 * plain)}B", memory=nothing_used())
    peaks = [train(model) for _ in range(3)]
    assert planner.current is not None
    assert planner.current.solution.head.nbytes < 0.2 * logits
    assert planner.current.solution.predicted.seconds == 0
    assert max(peaks) <= 1.2 * plain
