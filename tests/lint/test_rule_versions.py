"""Rules whose answer depends on the library versions a project admits; nothing stated means the newest."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.check import check_source

BY_KEYWORD = """
    import torch.nn as nn
    from transformers.modeling_layers import GradientCheckpointingLayer

    class Block(GradientCheckpointingLayer):
        def forward(self, hidden_states):
            return hidden_states

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Block() for _ in range(4))

        def forward(self, hidden_states):
            for layer in self.layers:
                hidden_states = layer(hidden_states=hidden_states)
            return hidden_states
"""
REENTRANT = """
    from transformers import TrainingArguments
    args = TrainingArguments("out", gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True})
"""


def found(code: str, **versions: str):
    findings = check_source(textwrap.dedent(code), versions=versions)
    return [(finding.code, str(finding.severity), finding.versions) for finding in findings]


@pytest.mark.parametrize("stated", [{}, {"transformers": ">=5.0"}, {"torch": ">=2.4"}])
def test_keyword_inputs_are_harmless_where_the_default_is_not_reentrant(stated):
    assert found(BY_KEYWORD, **stated) == []


def test_keyword_inputs_are_named_for_the_releases_that_default_to_reentrant():
    assert found(BY_KEYWORD, transformers=">=4.53") == [("CKPT118", "warning", "transformers<5.0")]


@pytest.mark.parametrize("stated", [{}, {"transformers": ">=4.53"}])
def test_keyword_inputs_are_an_error_where_the_script_asks_for_reentrant(stated):
    assert found(BY_KEYWORD + REENTRANT, **stated) == [("CKPT118", "error", None)]
