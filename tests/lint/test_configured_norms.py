"""What mmcv builds from a configuration: a BatchNorm that the program shows, or one under a condition."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import torch.nn as nn
import torch.utils.checkpoint as cp
from mmcv.cnn import ConvModule, build_norm_layer
from mmengine.model import BaseModule, ModuleList, Sequential
from mmengine.registry import MODELS, build_from_cfg

@MODELS.register_module()
class Block(BaseModule):
    def __init__(self, dim, with_cp=False, norm_cfg=dict(type="BN"), init_cfg=None):
        super().__init__(init_cfg)
        self.with_cp = with_cp
        {init}

    @property
    def norm1(self):
        return getattr(self, self.norm1_name)

    def forward(self, x):
        def inner(x):
            return {result}

        if self.with_cp and x.requires_grad:
            return cp.checkpoint(inner, x, use_reentrant=False)
        return inner(x)

"""
NAMED = "self.norm1_name, norm1 = build_norm_layer({}, dim, postfix=1)\nself.add_module(self.norm1_name, norm1)"
BY_DEFAULT = "`norm_cfg` is `dict(type='BN')`"


def block(init: str, result: str = "self.block(x)", after: str = "") -> str:
    return HEAD.format(init=textwrap.indent(init, " " * 8).strip(), result=result) + after


def found(code: str) -> list[tuple[str, str | None]]:
    # A region around a norm alone is of no use (CKPT403), whichever it is.
    given = check_source(code, select="CKPT106".__eq__, notes=True)
    return [(finding.code, finding.condition) for finding in given]


OPEN = {
    "a named layer": (NAMED.format("norm_cfg"), "self.norm1(x)"),
    "the layer alone": ("self.block = build_norm_layer(norm_cfg, dim)[1]", "self.block(x)"),
    "kept first": ("self.norm_cfg = norm_cfg\nself.block = build_norm_layer(self.norm_cfg, dim)[1]", "self.block(x)"),
    "a block": ("self.block = ConvModule(dim, dim, 3, norm_cfg=norm_cfg)", "self.block(x)"),
    "blocks": (
        "self.blocks = ModuleList()\nfor _ in range(2):\n    self.blocks.append(ConvModule(dim, dim, 3, norm_cfg=norm_cfg))",
        "self.blocks[0](x)",
    ),
}


@pytest.mark.parametrize(("init", "result"), OPEN.values(), ids=OPEN.keys())
def test_what_a_default_builds_is_a_note_that_names_it(init, result):
    code = block(init, result)
    assert check_source(code) == []
    assert found(code) == [("CKPT106", BY_DEFAULT)]


@pytest.mark.parametrize(("init", "result"), OPEN.values(), ids=OPEN.keys())
@pytest.mark.parametrize(
    "call",
    [
        "Block(8)",
        "Block(8, norm_cfg=dict(type='SyncBN', requires_grad=True))",
        "MODELS.build(dict(type='Block', dim=8))",
        "build_from_cfg(dict(type='Block', dim=8), MODELS)",
    ],
)
def test_a_call_that_the_program_shows_decides(init, result, call):
    assert found(block(init, result, f"net = {call}\n")) == [("CKPT106", None)]


@pytest.mark.parametrize(("init", "result"), OPEN.values(), ids=OPEN.keys())
@pytest.mark.parametrize(
    "norm", ["type='GN', num_groups=2", "type='LN'", "type='IN'", "type='BN', momentum=0.0", "type='MyNorm'"]
)
def test_another_norm_is_silent(init, result, norm):
    assert found(block(init, result, f"net = Block(8, norm_cfg=dict({norm}))\n")) == []


@pytest.mark.parametrize(
    "init",
    [
        NAMED.format("dict(type='BN')").replace("norm1_name", "norm1_name") + "\nself.block = norm1",
        "self.block = build_norm_layer(dict(type='BN1d', momentum=0.1), dim)[1]",
        "self.block = build_norm_layer({'type': nn.BatchNorm2d}, dim)[1]",
        "self.block = Sequential(nn.ReLU(), ConvModule(dim, dim, 3, norm_cfg=dict(type='BN')))",
        "self.block = ConvModule(dim, dim, 3, 1, 1, 1, 1, 'auto', None, dict(type='SyncBN'))",
    ],
)
def test_a_norm_that_the_program_names_is_a_finding(init):
    assert found(block(init)) == [("CKPT106", None)]


@pytest.mark.parametrize(
    "init",
    [
        "self.block = ConvModule(dim, dim, 3)",
        "self.block = ConvModule(dim, dim, 3, norm_cfg=dict(type='GN', num_groups=2))",
        "self.block = build_norm_layer(dict(type='GN', num_groups=2), dim)[1]",
        "self.block = ConvModule(dim, dim, 3, norm_cfg=init_cfg)",
    ],
)
def test_a_block_without_batch_norm_is_silent(init):
    assert found(block(init)) == []


def test_norms_in_eval_mode_are_silent():
    after = """
    def train(self, mode=True):
        super().train(mode)
        for m in self.modules():
            if isinstance(m, nn.modules.batchnorm._BatchNorm):
                m.eval()
"""
    assert found(block(OPEN["a block"][0], after=after)) == []


def test_the_default_of_a_class_is_a_note_too():
    code = """
    import torch.nn as nn
    from functools import partial
    from torch.utils.checkpoint import checkpoint

    class Net(nn.Module):
        def __init__(self, dim, norm_layer={default}):
            super().__init__()
            self.block = nn.Sequential(nn.Linear(dim, dim), norm_layer(dim))

        def forward(self, x):
            return checkpoint(self.block, x, use_reentrant=False)
    """
    code = textwrap.dedent(code)
    for default in ("nn.BatchNorm1d", "partial(nn.BatchNorm1d, eps=0.001)"):
        assert found(code.format(default=default)) == [("CKPT106", f"`norm_layer` is `{default}`")]
        assert found(code.format(default=default) + "net = Net(8)\n") == [("CKPT106", None)]
    assert found(code.format(default="nn.LayerNorm")) == []


def test_an_instance_with_an_open_norm_does_not_decide():
    after = """
class Outer(BaseModule):
    def __init__(self, dim, norm_cfg, with_cp=False):
        super().__init__()
        self.block, self.with_cp = Block(dim, norm_cfg=norm_cfg), with_cp

    def forward(self, x):
        if self.with_cp:
            return cp.checkpoint(self.block, x, use_reentrant=False)
        return self.block(x)
"""
    for init, result in OPEN.values():
        assert check_source(block(init, result, after)) == []
