"""Functions that a loop makes and collects, and that are checkpointed when it is over."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(4))
"""
RUN = """
        for function in functions:
            x = checkpoint(function, x, use_reentrant=False)
        return x
"""
WRONG = {
    "lambdas in a list": """
    def forward(self, x):
        functions = []
        for block in self.blocks:
            functions.append(lambda h: block(h))
""",
    "local functions": """
    def forward(self, x):
        functions = []
        for index, block in enumerate(self.blocks):
            def run(h):
                return block(h) * index
            functions.append(run)
""",
    "a comprehension": """
    def forward(self, x):
        functions = [lambda h: block(h) for block in self.blocks]
""",
    "a generator": """
    def forward(self, x):
        functions = (lambda h: block(h) for block in self.blocks)
""",
}
RIGHT = {
    "bound": """
    def forward(self, x):
        functions = []
        for block in self.blocks:
            functions.append(lambda h, block=block: block(h))
""",
    "made by a function": """
    def forward(self, x):
        def make(block):
            return lambda h: block(h)
        functions = [make(block) for block in self.blocks]
""",
    "the last one": """
    def forward(self, x):
        for block in self.blocks:
            function = lambda h: block(h)
        functions = [function]
""",
    "the one that was found": """
    def forward(self, x):
        functions = []
        for block in self.blocks:
            if block.first:
                functions.append(lambda h: block(h))
                break
""",
    "nothing of the loop": """
    def forward(self, x):
        functions = []
        for block in self.blocks:
            functions.append(lambda h: self.blocks[0](h))
""",
}


def codes(case: str) -> set[str]:
    return {finding.code for finding in check_source(HEAD + case + RUN, "model.py")}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_all_of_them_run_the_last_block(case):
    assert "CKPT105" in codes(case)


@pytest.mark.parametrize("case", RIGHT.values(), ids=RIGHT)
def test_each_runs_its_own(case):
    assert "CKPT105" not in codes(case)


def test_built_by_the_constructor():
    built = """
        self.functions = []
        for block in self.blocks:
            self.functions.append(lambda h: block(h))

    def forward(self, x):
        functions = self.functions
"""
    assert "CKPT105" in codes(built)
    assert "CKPT105" not in codes(built.replace("lambda h:", "lambda h, block=block:"))
