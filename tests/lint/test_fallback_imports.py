"""Behind `try: from torch import x`, `except ImportError: x = None`, what uses the name uses torch's."""

from __future__ import annotations

import pytest
from hf_ckpt.lint import check_source

SCRIPT = """
from functools import partial
try:
    {tried}
except {caught}:
    {fallback}

class Stage:
    run = staticmethod(partial(checkpoint, use_reentrant=True))

    def forward(self, block, x):
        return self.run(block, x, scale=2.0)
"""
IMPORT = "from torch.utils.checkpoint import checkpoint"


def codes(text: str) -> list[str]:
    return [finding.code for finding in check_source(text)]


@pytest.mark.parametrize("caught", ["ImportError", "(ImportError, ModuleNotFoundError)", "Exception"])
def test_the_imported_function_is_the_one_that_is_used(caught: str) -> None:
    assert codes(SCRIPT.format(tried=IMPORT, caught=caught, fallback="checkpoint = None")) == ["CKPT301"]


def test_another_function_may_be_the_one() -> None:
    fallback = "from compat import checkpoint"
    assert codes(SCRIPT.format(tried=IMPORT, caught="ImportError", fallback=fallback)) == []


def test_another_library_may_be_missing() -> None:
    text = """
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
try:
    from apex.normalization import FusedLayerNorm
except ImportError:
    FusedLayerNorm = None

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8) if FusedLayerNorm is None else nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(self.linear(x)).relu()

def forward(x):
    return checkpoint(Block(), x, use_reentrant=False)
"""
    assert codes(text) == []
