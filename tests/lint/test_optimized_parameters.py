"""An optimizer steps a model between its forward and its backward pass, however it was given the parameters."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

LOOP = """
import itertools
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)

trunk, policy, value = Trunk(), nn.Linear(8, 4), nn.Linear(8, 1)
optimizer = torch.optim.SGD(PARAMETERS, lr=0.1)
for x in torch.randn(3, 4, 8):
    policy_loss = policy(trunk(x)).mean()
    value_loss = value(trunk(x)).mean()
    policy_loss.backward()
    optimizer.step()
    value_loss.backward()
    optimizer.step()
"""
WITH = (
    "trunk.parameters()",
    "[*trunk.parameters(), *policy.parameters(), *value.parameters()]",
    "list(policy.parameters()) + list(trunk.parameters())",
    "itertools.chain(trunk.parameters(), value.parameters())",
    "[{'params': trunk.parameters()}, {'params': value.parameters(), 'lr': 0.01}]",
)
WITHOUT = (
    "[*policy.parameters(), *value.parameters()]",
    "[{'params': trunk.parameters(), 'lr': 0.0}, {'params': value.parameters()}]",
    "filter(lambda p: p.ndim == 1, trunk.parameters())",
)


def codes(parameters: str) -> list[str]:
    return [finding.code for finding in check_source(LOOP.replace("PARAMETERS", parameters), "train.py")]


@pytest.mark.parametrize("parameters", WITH)
def test_the_checkpointed_model_is_stepped(parameters):
    assert codes(parameters) == ["CKPT114"]


@pytest.mark.parametrize("parameters", WITHOUT)
def test_others_are(parameters):
    assert codes(parameters) == []
