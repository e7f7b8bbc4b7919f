"""What rests on a condition that the program leaves open is a note that names it, shown only when asked for."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest
from hf_ckpt.lint.analysis.check_file import check_bytes
from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.analysis.job import Job
from hf_ckpt.lint.project.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

HEAD = """
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, dim, norm="ln", norm_layer=None, sync=False):
        super().__init__()
{init}

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
"""


def net(init: str, after: str = "") -> str:
    return HEAD.format(init=textwrap.indent(textwrap.dedent(init).strip(), " " * 8)) + textwrap.dedent(after)


def found(code: str) -> list[tuple[str, str | None]]:
    return [(finding.code, finding.condition) for finding in check_source(textwrap.dedent(code), notes=True)]


OPEN = {
    "a statement": (
        """
        if norm == "bn":
            self.block = nn.Sequential(nn.BatchNorm1d(dim))
        else:
            self.block = nn.Sequential(nn.LayerNorm(dim))
        """,
        '`norm` is "bn"',
    ),
    "what a loop does not set": (
        """
        layers = []
        for i in range(3):
            layers.append(nn.Linear(dim, dim))
            if sync and i > 0:
                layers.append(nn.BatchNorm1d(dim))
        self.block = nn.Sequential(*layers)
        """,
        "`sync`",
    ),
    "one or the other": (
        """
        layers = []
        for i in range(3):
            layers.append(nn.Linear(dim, dim))
            if sync or i > 5:
                layers.append(nn.BatchNorm1d(dim))
        self.block = nn.Sequential(*layers)
        """,
        "`sync or i > 5`",
    ),
    "the last of several": (
        """
        if norm == "ln":
            layer = nn.LayerNorm
        elif norm == "bn":
            layer = nn.BatchNorm1d
        else:
            raise ValueError(norm)
        self.block = nn.Sequential(layer(dim))
        """,
        '`norm` is not "ln"',
    ),
    "an expression": ("self.block = (nn.BatchNorm1d if sync else nn.LayerNorm)(dim)", "`sync`"),
    "a default that stands for None": (
        """
        norm_layer = norm_layer or nn.BatchNorm1d
        self.block = nn.Sequential(norm_layer(dim))
        """,
        "not `norm_layer`",
    ),
    "a default that is set": (
        """
        if norm_layer is None:
            norm_layer = nn.BatchNorm1d
        self.block = nn.Sequential(norm_layer(dim))
        """,
        "`norm_layer` is `None`",
    ),
    "a match": (
        """
        match norm:
            case "bn":
                self.block = nn.BatchNorm1d(dim)
            case _:
                self.block = nn.Identity()
        """,
        '`norm` is "bn"',
    ),
    "a function that is chosen": (
        """
        layer = nn.BatchNorm1d(dim)
        if norm == "ln":
            self.block = lambda x: x
        elif norm == "bn":
            self.block = lambda x: layer(x.transpose(1, 2))
        """,
        '`norm` is "bn"',
    ),
    "a list that grows": (
        """
        layers = [nn.Linear(dim, dim)]
        if sync:
            layers.append(nn.BatchNorm1d(dim))
        self.block = nn.Sequential(*layers)
        """,
        "`sync`",
    ),
}
CERTAIN = {
    "both ways": """
        if sync:
            self.block = nn.Sequential(nn.SyncBatchNorm(dim))
        else:
            self.block = nn.Sequential(nn.BatchNorm1d(dim))
        """,
    "the other way raises": """
        if dim % 8:
            raise ValueError(dim)
        self.block = nn.Sequential(nn.BatchNorm1d(dim))
        """,
    "a switch of something else": """
        self.block = nn.Sequential(nn.BatchNorm1d(dim))
        if sync:
            self.head = nn.Linear(dim, dim)
        """,
}


@pytest.mark.parametrize(("init", "condition"), OPEN.values(), ids=OPEN.keys())
def test_a_mistake_under_an_open_condition_is_a_note_that_names_it(init, condition):
    code = net(init)
    assert check_source(code) == []
    assert found(code) == [("CKPT106", condition)]


@pytest.mark.parametrize("init", CERTAIN.values(), ids=CERTAIN.keys())
def test_a_mistake_that_every_way_comes_to_is_a_finding(init):
    assert found(net(init)) == [("CKPT106", None)]


@pytest.mark.parametrize(
    "call", ['Net(8, norm="bn")', 'Net(8, "bn")', 'Net(**{"dim": 8, "norm": "bn"})', 'build(norm="bn", dim=8)']
)
def test_a_call_that_the_program_shows_decides(call):
    build = "def build(**options):\n    return Net(**options)\n"
    assert found(net(OPEN["a statement"][0], f"{build}net = {call}\n")) == [("CKPT106", None)]


def test_a_default_that_the_call_leaves_decides_too():
    code = net(OPEN["a default that is set"][0], "net = Net(8)\n")
    assert found(code) == [("CKPT106", None)]


def test_what_runs_under_a_condition_inside_the_region_is_a_note():
    code = """
    import random
    from torch.utils.checkpoint import checkpoint

    def block(x, noisy):
        if noisy:
            x = x + random.random()
        return x * 2

    def forward(x, noisy):
        return checkpoint(block, x, noisy, use_reentrant=False)
    """
    assert found(code) == [("CKPT115", "`noisy`")]
    assert check_source(textwrap.dedent(code)) == []


FACTORY = """
    import torch.nn as nn
    import torch.nn.functional as F
    from torch.utils.checkpoint import checkpoint

    def plain(x):
        return x * 2

    def noisy(x):
        return F.dropout(x, 0.1)

    def custom(function):
        def run(*inputs):
            return function(*inputs)
        return run

    def forward(x):
        x = checkpoint(custom({first}), x, use_reentrant=False, preserve_rng_state=False)
        return checkpoint(custom({second}), x, use_reentrant=False, preserve_rng_state=False)
"""


@pytest.mark.parametrize(("first", "second", "line"), [("noisy", "plain", 18), ("plain", "noisy", 19)])
def test_the_functions_of_one_factory_are_told_apart(first, second, line):
    findings = check_source(textwrap.dedent(FACTORY.format(first=first, second=second)))
    assert [(finding.code, finding.span.line) for finding in findings] == [("CKPT108", line)]


def test_what_a_pop_leaves_of_a_dict_is_not_known():
    code = """
    from torch.utils.checkpoint import checkpoint

    def forward(block, x, **kwargs):
        kwargs.pop("cache", None)
        if kwargs:
            raise TypeError(kwargs)
        return checkpoint(block, x)
    """
    assert found(code) == [("CKPT101", None)]


def test_notes_are_asked_for_by_a_setting(tmp_path: Path):
    path = str(tmp_path / "net.py")
    data = net(OPEN["an expression"][0]).encode()
    assert check_bytes(Job(path, Settings()), data).findings == ()
    (note,) = check_bytes(Job(path, Settings(notes=True)), data).findings
    assert (note.code, str(note.severity)) == ("CKPT106", "note")
    assert note.message.startswith("if `sync`: `BatchNorm1d` in this region")


def test_a_comment_that_silences_a_note_is_in_use(tmp_path: Path):
    code = net(OPEN["an expression"][0]).replace("use_reentrant=False)", "use_reentrant=False)  # noqa: CKPT106")
    for notes in (True, False):
        job = Job(str(tmp_path / "net.py"), Settings(notes=notes))
        assert check_bytes(job, code.encode()).findings == ()


DROP = """
    import torch.nn as nn
    from torch.utils.checkpoint import checkpoint

    class Block(nn.Module):
        def __init__(self, dim, drop_layer=nn.Dropout):
            super().__init__()
            self.fc, self.drop = nn.Linear(dim, dim), drop_layer(0.1)

        def forward(self, x):
            return self.drop(self.fc(x))

    class Net(nn.Module):
        def __init__(self, block: Block):
            super().__init__()
            self.stem, self.block = nn.Linear(8, 8), block

        def forward(self, x):
            return checkpoint(self.block, self.stem(x), use_reentrant=False, preserve_rng_state=False)
"""


def test_a_layer_by_default_is_a_condition():
    assert found(DROP) == [("CKPT108", "`drop_layer` is `nn.Dropout`")]
    assert check_source(textwrap.dedent(DROP)) == []


def test_a_layer_by_default_is_none_where_the_only_caller_hands_on_another():
    assert found(DROP + "\n    def made(layer):\n        return Block(8, layer)\n") == []


def test_a_layer_by_default_counts_where_the_call_is_shown():
    assert found(DROP + "\n    net = Net(Block(8))\n") == [("CKPT108", None)]


PARTS = """
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Down(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(c, c, 3), nn.BatchNorm1d(c)

    def forward(self, x):
        return self.norm(self.conv(x))

class Encoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        MADE

    def forward(self, x):
        USED
        return x
"""
LISTED = """if config.distil:
            self.downs = nn.ModuleList([Down(8) for _ in range(2)])
            self.downs.append(None)
        else:
            self.downs = [None] * 3"""
IN_LOOP = """for down in self.downs:
            if down is not None:
                x = checkpoint(down, x, use_reentrant=False)"""
ALONE = "self.down = Down(8) if config.distil else {}"


@pytest.mark.parametrize(
    ("made", "used", "expected"),
    [
        (LISTED, IN_LOOP, None),
        (ALONE.format(None), "x = checkpoint(self.down, x, use_reentrant=False) if self.down else x", None),
        (ALONE.format("nn.Conv1d(8, 8, 3)"), "x = checkpoint(self.down, x, use_reentrant=False)", "`config.distil`"),
    ],
)
def test_what_runs_was_made_under_its_conditions(made, used, expected):
    found = check_source(PARTS.replace("MADE", made).replace("USED", used), "model.py", notes=True)
    assert [(it.code, it.condition) for it in found if it.code == "CKPT106"] == [("CKPT106", expected)]


COUNTING = """
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    CLASS
    def __init__(self, fancy):
        super().__init__()
        self.fc, self.count = nn.Linear(8, 8), 0
        STORES

    def forward(self, x):
        if self.ASKS:
            self.count += 1
            x = x * self.count
        return self.fc(x).relu()

class Net(nn.Module):
    def __init__(self, fancy, counting):
        super().__init__()
        self.fancy = fancy
        self.block = None
        if self.fancy:
            self.block = Block(counting)

    def forward(self, x):
        return x if self.block is None else checkpoint(self.block, x, use_reentrant=False)
"""


@pytest.mark.parametrize(
    ("said", "stores", "asks"),
    [
        ("pass", "self.fancy = fancy", "fancy"),
        ('mode = "plain"', 'if fancy: self.mode = "counting"', 'mode == "counting"'),
    ],
)
def test_what_is_open_in_the_class_of_a_layer(said, stores, asks):
    text = COUNTING.replace("CLASS", said).replace("STORES", stores).replace("ASKS", asks)
    assert found(text) == [("CKPT107", f"`self.{asks}`".replace(' == "counting"`', '` is "counting"'))]


JITTERED = """
    import numpy as np
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    def jitter(x, scale, on):
        if on:
            x = x + torch.from_numpy(np.random.rand(*x.shape)) * scale
        return x

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.noisy = nn.Linear(8, 8), False

        def forward(self, x):
            return self.linear(jitter(x, 0.1, GIVEN))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Block()

        def forward(self, x):
            return checkpoint(self.block, x, use_reentrant=False)
    """


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("self.training", [("CKPT115", None)]),
        ("on=self.training", [("CKPT115", None)]),
        ("x.requires_grad", [("CKPT115", "`on`")]),
        ("not self.training", [("CKPT115", "`on`")]),
    ],
)
def test_the_mode_that_a_helper_is_given_is_that_of_training(given, expected):
    assert found(JITTERED.replace("GIVEN", given))[:1] == expected
