"""A function that several checkpoints run is judged with the module that each one gives it."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

NET = """
from functools import partial
from torch import nn
from torch.utils.checkpoint import checkpoint

def run(module, h):
    return module(h)

def forwarded(h, module):
    return module.forward(h)

class Net(nn.Module):
    def __init__(self, path):
        super().__init__()
        self.normed = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))
        self.plain = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU())

    def call(self, module, h):
        return module(h)

    def forward(self, x, more):
        x = CALL(self.plain)
        return CALL(self.normed)
"""
CALLS = {
    "input": "checkpoint(run, {}, x, use_reentrant=False)",
    "keyword": "checkpoint(forwarded, x, module={}, use_reentrant=False)",
    "partial": "checkpoint(partial(run, {}), x, use_reentrant=False)",
    "partial by keyword": "checkpoint(partial(forwarded, module={}), x, use_reentrant=False)",
    "partial of a partial": "checkpoint(partial(partial(run), {}), x, use_reentrant=False)",
    "partial of a lambda": "checkpoint(partial(lambda module, h: module(h), {}), x, use_reentrant=False)",
    "method": "checkpoint(self.call, {}, x, use_reentrant=False)",
    "partial of a method": "checkpoint(partial(self.call, {}), x, use_reentrant=False)",
    "default": "checkpoint(lambda h, module={}: module(h), x, use_reentrant=False)",
}


def lines_found(call: str) -> list[str]:
    text = NET
    for given in ("self.plain", "self.normed"):
        text = text.replace(f"CALL({given})", call.format(given))
    found = [it for it in check_source(text, "net.py") if it.code == "CKPT106"]
    return [text.splitlines()[it.span.line - 1].strip() for it in found]


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_checkpoint_is_named_that_gives_the_module(call: str) -> None:
    assert [line for line in lines_found(call) if "self.plain" in line] == []
    assert len([line for line in lines_found(call) if "self.normed" in line]) == 1


def test_what_an_unknown_list_gives_is_open() -> None:
    assert lines_found("checkpoint(run, *more, {}, use_reentrant=False)") == []


#: Bodies of `forward` that checkpoint `self.plain` alone, and run `self.normed` by the same helper outside.
SHARED = {
    "inside another helper": "x = apply(self.normed, x)\n        return checkpoint(run, self.plain, x, use_reentrant=False)",
    "inside a lambda": "x = run(self.normed, x)\n        return checkpoint(lambda h: run(self.plain, h), x, use_reentrant=False)",
    "called without one": """x = apply(self.normed, x)
        if self.training:
            return checkpoint(apply, self.plain, x, use_reentrant=False)
        return apply(self.plain, x)""",
    "a method": "x = self.call(self.normed, x)\n        return checkpoint(self.call, self.plain, x, use_reentrant=False)",
}
HELPERS = """
from torch import nn
from torch.utils.checkpoint import checkpoint

def apply(module, h):
    return module(h)

def run(module, h):
    return apply(module, h)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.normed = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))
        self.plain = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU())

    def call(self, module, h):
        return module(h)

    def forward(self, x):
        BODY
"""


@pytest.mark.parametrize("body", SHARED.values(), ids=SHARED)
def test_a_helper_that_regions_share_with_other_code_runs_what_the_region_gives_it(body: str) -> None:
    swapped = body.replace("self.normed", "self.other").replace("self.plain", "self.normed")
    swapped = swapped.replace("self.other", "self.plain")
    assert [it.code for it in check_source(HELPERS.replace("BODY", body), "net.py")] == []
    assert [it.code for it in check_source(HELPERS.replace("BODY", swapped), "net.py")] == ["CKPT106"]


CHANGED = """
from functools import partial
from torch import nn
from torch.utils.checkpoint import checkpoint

def run(module, h):
    return module(h)

class Runner:
    def __init__(self, module):
        self.module = module

    def __call__(self, h):
        return self.module(h)

class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        CHANGE
        return self.fc(x.tanh())

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(8, 8)
        self.blocks = nn.ModuleList([Shifted() for _ in range(3)])

    def call(self, h, module):
        return module(h)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(CALLED, use_reentrant=False)
        return x
"""


CALLED = (
    "run, block, x",
    "partial(run, block), x",
    "lambda h, block=block: block(h), x",
    "self.call, x, block",
    "Runner(block), x",
    "partial(self.call, module=block), x",
)


@pytest.mark.parametrize("called", CALLED)
def test_a_module_that_changes_its_input_is_found_where_a_helper_runs_it(called: str) -> None:
    text = CHANGED.replace("CALLED", called)
    assert [it.code for it in check_source(text.replace("CHANGE", "x += 1"), "net.py")] == ["CKPT117"]
    assert [it.code for it in check_source(text.replace("CHANGE", "x = x + 1"), "net.py")] == []


@pytest.mark.parametrize("called", CALLED)
def test_a_structured_result_is_found_where_a_helper_hands_it_on(called: str) -> None:
    text = CHANGED.replace("CHANGE", "x = x + 1").replace(
        "CALLED, use_reentrant=False)", f"{called}, use_reentrant=True)"
    )
    named = text.replace("return self.fc(x.tanh())", 'return {"h": self.fc(x.tanh())}').replace("=True)", '=True)["h"]')
    assert [it.code for it in check_source(named, "net.py")] == ["CKPT116"]
    assert [it.code for it in check_source(text, "net.py")] == []
