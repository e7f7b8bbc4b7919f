"""Losses that never build logits are not charged for them."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, LlamaConfig

from hf_ckpt.measuring.peak import PeakMeter

from ..planner_models import conduct, nothing_used

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
