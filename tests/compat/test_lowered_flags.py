"""Modeling code that checkpoints by itself does not checkpoint a second time, whichever of its modules a loss runs."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import LlamaConfig, PreTrainedModel

from hf_ckpt import apply

if TYPE_CHECKING:
    from collections.abc import Callable


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(8), nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(self.norm(x))


class Inner(nn.Module):
    """Asks its own attribute and calls torch, as remote code does."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.gradient_checkpointing = False
        self.seen: list[bool] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(self.gradient_checkpointing)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.gradient_checkpointing else layer(x)
        return x


class Older(PreTrainedModel):
    config_class = LlamaConfig
    supports_gradient_checkpointing = True

    def __init__(self) -> None:
        super().__init__(LlamaConfig())
        self.model, self.head = Inner(), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.model(x))


def whole(model: Any) -> torch.Tensor:
    return model(torch.ones(2, 4, 8)).sum()


def without_its_head(model: Any) -> torch.Tensor:
    return model.head(model.model(torch.ones(2, 4, 8))).sum()


@pytest.mark.parametrize("loss", [whole, without_its_head])
def test_the_flag_is_down_while_a_loss_runs_the_layers(loss: Callable[[Any], torch.Tensor]) -> None:
    model = Older().train()
    handle = apply(model, "full")
    for trained in (model, copy.deepcopy(model)):
        assert trained.model.gradient_checkpointing
        loss(trained).backward()
        assert trained.model.gradient_checkpointing
        assert trained.model.seen == [False]
        trained.model.seen.clear()
    handle.restore()
    assert not model.model.gradient_checkpointing
    assert not model.model._forward_hooks
    assert not model.model._forward_pre_hooks


def test_a_forward_that_fails_leaves_the_flag_up() -> None:
    model = Older().train()
    apply(model, "full")
    with pytest.raises(RuntimeError):
        model.model(torch.ones(2, 4, 7))
    assert model.model.gradient_checkpointing
    without_its_head(model)
    assert model.model.seen == [False, False]
