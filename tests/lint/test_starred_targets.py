"""`first, *rest = self.stages`: what each of the targets takes."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

def plain(width):
    return nn.Sequential(nn.Conv2d(width, width, 3), nn.GroupNorm(1, width))

def batch(width):
    return nn.Sequential(nn.Conv2d(width, width, 3), nn.BatchNorm2d(width))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.ModuleList([batch(8), plain(8), plain(8)])
        self.last = nn.Sequential(plain(8), plain(8), batch(8))
        self.grown = nn.ModuleList()
        for width in (8, 8, 8):
            self.grown.append(batch(width))
        stem, *blocks = [batch(8), plain(8), plain(8)]
        self.stem, self.blocks = stem, nn.Sequential(*blocks)
        head, *rest = [plain(8), batch(8)]
        self.head, self.rest = head, nn.Sequential(*rest)

    def forward(self, x):
"""
WRONG = {
    "the one in front": """
        stem, *others = self.first
        return checkpoint(stem, x, use_reentrant=False)
""",
    "the one behind": """
        *others, head = self.last
        return checkpoint(head, x, use_reentrant=False)
""",
    "those behind": """
        stem, *others = self.last
        for stage in others:
            x = checkpoint(stage, x, use_reentrant=False)
        return x
""",
    "a list that a loop grew": """
        stem, *others = self.grown
        x = stem(x)
        for stage in others:
            x = checkpoint(stage, x, use_reentrant=False)
        return x
""",
    "put into a container": """
        return checkpoint(self.rest, self.head(x), use_reentrant=False)
""",
}
RIGHT = {
    "those behind": """
        stem, *others = self.first
        x = stem(x)
        for stage in others:
            x = checkpoint(stage, x, use_reentrant=False)
        return x
""",
    "those before": """
        *others, head = self.last
        for stage in others:
            x = checkpoint(stage, x, use_reentrant=False)
        return head(x)
""",
    "those between": """
        stem, *others, head = self.first
        for stage in others:
            x = checkpoint(stage, x, use_reentrant=False)
        return head(x)
""",
    "put into a container": """
        return checkpoint(self.blocks, self.stem(x), use_reentrant=False)
""",
    "not shown": """
        stem, *others = x.stages
        for stage in others:
            x = checkpoint(stage, x, use_reentrant=False)
        return x
""",
}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_what_a_target_takes_is_found(body: str) -> None:
    assert [finding.code for finding in check_source(HEAD + body)] == ["CKPT106"]


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_what_another_target_takes_is_left_alone(body: str) -> None:
    assert not check_source(HEAD + body)
