"""Modules as PyTorch builds them: containers, children by name, annotations. What is held is known; nothing else is."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import collections
import copy
import torch
import torch.nn as nn
from collections import OrderedDict
from functools import partial
from typing import List, Optional, Sequence
from torch.utils.checkpoint import checkpoint

class Norm(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width), nn.BatchNorm1d(width)

    def forward(self, x):
        return self.norm(self.linear(x))

class Plain(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(self.linear(x))
"""
NET = """
class Net(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
{build}

    def forward(self, x):
{run}
"""
LOOP = "for stage in self.stages:\n    x = checkpoint(stage, x, use_reentrant=False)\nreturn x"
WHOLE = "return checkpoint(self.stages, x, use_reentrant=False)"
NUMBERED = (
    'for i in range(3):\n    x = checkpoint(getattr(self, f"stage{i}"), x, use_reentrant=False)\nreturn x',
    'for i in range(3):\n    x = checkpoint(getattr(self, "stage" + str(i)), x, use_reentrant=False)\nreturn x',
    'for i in range(3):\n    x = checkpoint(self._modules[f"stage{i}"], x, use_reentrant=False)\nreturn x',
    "return checkpoint(self.stage1, x, use_reentrant=False)",
)
FILLED = (
    "self.stages = nn.Sequential(*[Norm() for _ in range(depth)])",
    "self.stages = nn.Sequential(*(Norm() for _ in range(depth)), nn.Linear(8, 8))",
    "self.stages = nn.Sequential(nn.Linear(8, 8), *[Norm()] * depth, Norm())",
    'self.stages = nn.Sequential(OrderedDict([("linear", nn.Linear(8, 8)), ("norm", Norm())]))',
    'self.stages = nn.Sequential(collections.OrderedDict({"linear": nn.Linear(8, 8), "norm": Norm()}))',
    'layers = OrderedDict()\nlayers["linear"] = nn.Linear(8, 8)\nlayers["norm"] = nn.BatchNorm1d(8)\n'
    "self.stages = nn.Sequential(layers)",
    'layers = OrderedDict()\nfor i in range(depth):\n    layers[f"norm{i}"] = nn.BatchNorm1d(8)\n'
    "self.stages = nn.Sequential(layers)",
    "layers = []\nfor _ in range(depth):\n    layers.append(Norm())\nself.stages = nn.Sequential(*layers)",
    "layers = [nn.Linear(8, 8)]\nfor _ in range(depth):\n    layers += [Norm()]\nself.stages = nn.Sequential(*layers)",
    "layers = []\nfor _ in range(depth):\n    layers += [nn.Linear(8, 8), nn.BatchNorm1d(8)]\nlayers += [nn.ReLU()]\n"
    "self.stages = nn.Sequential(*layers)",
    "layers = []\nfor _ in range(depth):\n    layers += [Norm(), nn.ReLU()]\nlayers = layers + [nn.Linear(8, 8)]\n"
    "self.stages = nn.Sequential(*layers)",
    "layers = []\nfor _ in range(depth):\n    layers = layers + [Norm()]\nfor _ in range(2):\n    layers = layers + [nn.ReLU()]\n"
    "for _ in range(2):\n    layers = layers + [nn.Linear(8, 8)]\nself.stages = nn.Sequential(*layers)",
    "layers = [nn.Linear(8, 8)]\nwhile len(layers) < depth:\n    layers += (Norm(), nn.ReLU())\nlayers.extend([nn.ReLU()])\n"
    "layers.append(nn.Linear(8, 8))\nself.stages = nn.Sequential(*layers)",
    "layers = [nn.Linear(8, 8)] if depth > 2 else []\nlayers += [Norm()]\nself.stages = nn.Sequential(*layers)",
    "layers = [nn.Linear(8, 8)] if depth > 2 else []\nlayers.append(Norm())\nself.stages = nn.Sequential(*layers)",
    "layers = [nn.Linear(8, 8)] if depth > 2 else []\nself.stages = nn.Sequential(*(layers + [Norm()]))",
    "self.layers = []\nfor _ in range(depth):\n    self.layers += [Norm()]\nself.stages = nn.Sequential(*self.layers)",
    "layers = []\nfor v in [8, 'M', 8]:\n    if v == 'M':\n        layers += [nn.ReLU()]\n    else:\n        layers += [Norm()]\n"
    "layers += [nn.ReLU()]\nself.stages = nn.Sequential(*layers)",
    "self.stages = nn.Sequential()\nfor _ in range(depth):\n    self.stages += nn.Sequential(Norm())",
    "blocks = nn.ModuleList()\nblocks += [Norm() for _ in range(depth)]\nself.stages = nn.Sequential(*blocks)",
    "layers = []\nlayers.extend([nn.Linear(8, 8), nn.BatchNorm1d(8)])\nself.stages = nn.Sequential(*layers)",
    'self.stages = nn.Sequential()\nself.stages.add_module("norm", Norm())',
    'self.stages = nn.Sequential()\nfor i in range(depth):\n    self.stages.register_module(f"norm{i}", Norm())',
    "self.stages = nn.Sequential()\nself.stages.append(Norm())",
    'layers = nn.ModuleDict({"a": Norm()})\nself.stages = layers["a"]',
    'layers = nn.ModuleDict()\nlayers["a"] = Norm()\nself.stages = layers["a"]',
    'self.add_module("stages", Norm())',
    'self.register_module("stages", Norm())',
    'setattr(self, "stages", Norm())',
    'self._modules["stages"] = Norm()',
)
DERIVED = (
    """
        def __init__(self, width):
            super().__init__(nn.Linear(width, width), nn.BatchNorm1d(width))
    """,
    """
        def __init__(self, width):
            layers = [nn.Linear(width, width)]
            layers.append(nn.BatchNorm1d(width))
            super().__init__(*layers)
    """,
    """
        def __init__(self, width):
            super(Stage, self).__init__(OrderedDict([("linear", nn.Linear(width, width)), ("bn", nn.BatchNorm1d(width))]))
    """,
    """
        def __init__(self, width):
            super().__init__()
            self.add_module("linear", nn.Linear(width, width))
            self.add_module("norm", nn.BatchNorm1d(width))
    """,
    """
        def __init__(self, width):
            super().__init__()
            self.linear = nn.Linear(width, width)
            self.norm = nn.BatchNorm1d(width)
    """,
    """
        def __init__(self, width):
            super().__init__()
            self.append(nn.Linear(width, width))
            self.append(nn.BatchNorm1d(width))
    """,
)


def indented(text: str) -> str:
    return textwrap.indent(textwrap.dedent(text), " " * 8)


def codes(*parts: str) -> list[str]:
    text = HEAD + "".join(textwrap.dedent(part) for part in parts)
    return [finding.code for finding in check_source(text, "model.py")]


def net(build: str, run: str) -> str:
    return NET.format(build=indented(build), run=indented(run))


@pytest.mark.parametrize("build", FILLED)
def test_what_a_container_holds_is_known(build):
    assert codes(net(build, WHOLE)) == ["CKPT106"]
    assert codes(net(build.replace("Norm()", "Plain()").replace("nn.BatchNorm1d", "nn.LayerNorm"), WHOLE)) == []


@pytest.mark.parametrize(
    "build",
    [
        "layers = [nn.Linear(8, 8)]\nif depth > 2:\n    layers += [Norm()]\nself.stages = nn.Sequential(*layers)",
        "layers = [nn.Linear(8, 8)]\nif depth > 2:\n    layers += [Norm()]\nelse:\n    layers += [Plain()]\n"
        "layers += [nn.ReLU()]\nself.stages = nn.Sequential(*layers)",
        "layers = [nn.Linear(8, 8)]\nmore = [*layers]\nmore += [Norm()]\nself.stages = nn.Sequential(*layers)",
        "layers = [nn.Linear(8, 8)]\nmore = layers + []\nmore += [Norm()]\nself.stages = nn.Sequential(*layers)",
        "layers = [nn.Linear(8, 8)]\nmore = layers[:1]\nmore += [Norm()]\nself.stages = nn.Sequential(*layers)",
        "layers = [nn.Linear(8, 8)]\nmore = copy.copy(layers)\nmore += [Norm()]\nself.stages = nn.Sequential(*layers)",
        "layers = [nn.Linear(8, 8)]\nmore = copy.deepcopy(layers)\nmore += [Norm()]\nself.stages = nn.Sequential(*layers)",
        "layers = [nn.Linear(8, 8)]\nmore = layers * 1\nmore += [Norm()]\nself.stages = nn.Sequential(*layers)",
        "layers = [nn.Linear(8, 8)]\nmore = layers.copy()\nmore += [Norm()]\nself.stages = nn.Sequential(*layers)",
        "layers = (nn.Linear(8, 8),)\nmore = layers\nmore += (Norm(),)\nself.stages = nn.Sequential(*layers)",
        "layers = [nn.Linear(8, 8)]\nmore = layers\nmore = more + [Norm()]\nself.stages = nn.Sequential(*layers)",
    ],
)
def test_what_a_container_may_not_hold_is_not_said(build):
    assert codes(net(build, WHOLE)) == []


@pytest.mark.parametrize("run", NUMBERED)
@pytest.mark.parametrize("name", ['f"stage{i}"', '"stage%d" % i', '"stage" + str(i)', '"stage{}".format(i)'])
def test_modules_stored_under_counted_names(name, run):
    build = f"for i in range(depth):\n    setattr(self, {name}, nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)))"
    assert codes(net(build, run)) == ["CKPT106"]
    assert codes(net(build.replace("BatchNorm1d", "LayerNorm"), run)) == []


def test_counted_names_that_do_not_fit_are_other_modules():
    build = 'self.head = Plain()\nfor i in range(depth):\n    setattr(self, f"stage{i}", Norm())'
    assert codes(net(build, "return checkpoint(self.head, x, use_reentrant=False)")) == []


@pytest.mark.parametrize("init", DERIVED)
def test_classes_derived_from_sequential(init):
    stage = "class Stage(nn.Sequential):" + init
    use = net("self.stages = nn.ModuleList([Stage(8) for _ in range(depth)])", LOOP)
    assert codes(stage, use) == ["CKPT106"]
    assert codes(stage.replace("BatchNorm1d", "LayerNorm"), use) == []


def test_a_position_of_a_sequential_is_that_module():
    build = "self.stages = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))"
    outside = net(build, "return self.stages[1](checkpoint(self.stages[0], x, use_reentrant=False))")
    assert "CKPT106" not in codes(outside)
    assert "CKPT106" in codes(net(build, "return checkpoint(self.stages[1], x, use_reentrant=False)"))


PAIRS = (
    "self.stages = nn.ModuleList([nn.ModuleList([Plain(), Norm()]) for _ in range(depth)])",
    "self.stages = nn.ModuleList()\nfor _ in range(depth):\n    self.stages.append(nn.ModuleList([Plain(), Norm()]))",
    "self.stages = nn.ModuleList()\nfor _ in range(depth):\n    pair = []\n    pair.append(Plain())\n"
    "    pair.append(Norm())\n    self.stages.append(nn.ModuleList(pair))",
    "self.stages = nn.ModuleList()\nfor _ in range(depth):\n    pair = []\n    if depth > 9:\n        pair.append(Plain())\n"
    "    pair.append(Plain())\n    pair.append(Norm())\n    self.stages.append(nn.ModuleList(pair))",
    "self.stages = nn.ModuleList()\nfor _ in range(depth):\n    pair = [Plain()]\n    if depth > 9:\n        pair.append(Norm())\n"
    "    self.stages.append(nn.ModuleList(pair))",
)
TAKEN_APART = (
    "for plain, norm in self.stages:\n    x = {}\nreturn x",
    "for pair in self.stages:\n    plain, norm = pair\n    x = {}\nreturn x",
    "for i, (plain, norm) in enumerate(self.stages):\n    x = {}\nreturn x",
)


@pytest.mark.parametrize("run", TAKEN_APART)
@pytest.mark.parametrize("build", PAIRS)
def test_the_modules_of_a_list_that_is_taken_apart_are_told_apart(build, run):
    assert codes(net(build, run.format("norm(checkpoint(plain, x, use_reentrant=False))"))) == []
    assert codes(net(build, run.format("checkpoint(norm, plain(x), use_reentrant=False)"))) == ["CKPT106"]


@pytest.mark.parametrize("run", TAKEN_APART)
def test_where_the_order_of_a_list_is_open_none_of_its_modules_is_named(run):
    build = (
        "self.stages = nn.ModuleList()\nfor _ in range(depth):\n    pair = [Plain()]\n    if depth > 9:\n"
        "        pair.append(Norm())\n    if depth > 2:\n        pair.append(Plain())\n"
        "    self.stages.append(nn.ModuleList(pair))"
    )
    assert codes(net(build, run.format("checkpoint(norm, plain(x), use_reentrant=False)"))) == []


def test_a_position_of_a_list_of_unknown_order_is_what_all_its_modules_are():
    build = "stages = [Norm()]\nfor _ in range(depth):\n    stages.append(Norm(4))\nself.stages = nn.ModuleList(stages)"
    assert codes(net(build, "return checkpoint(self.stages[0], x, use_reentrant=False)")) == ["CKPT106"]
    assert (
        codes(net(build.replace("Norm(4)", "Plain()"), "return checkpoint(self.stages[1], x, use_reentrant=False)"))
        == []
    )


def test_a_position_of_a_module_list_is_that_module():
    build = "self.stages = nn.ModuleList([Plain(), Norm()])"
    assert codes(net(build, "return self.stages[1](checkpoint(self.stages[0], x, use_reentrant=False))")) == []
    assert codes(net(build, "return checkpoint(self.stages[-1], x, use_reentrant=False)")) == ["CKPT106"]


def test_a_position_behind_what_a_condition_adds_is_open():
    build = "stages = [Plain()]\nif depth > 9:\n    stages.append(Norm())\nstages.append(Plain())\nself.stages = nn.ModuleList(stages)"
    assert codes(net(build, "return checkpoint(self.stages[1], x, use_reentrant=False)")) == []
    assert codes(net(build, "return checkpoint(self.stages[0], x, use_reentrant=False)")) == []


@pytest.mark.parametrize(
    "parameter",
    ["block: Norm", "block: 'Norm'", "block: Optional[Norm]", "block: Norm | None", "block: Norm | None = None"],
)
def test_an_annotated_parameter(parameter):
    run = f"def run(x, {parameter}):\n    return checkpoint(block, x, use_reentrant=False)\n"
    assert codes(run) == ["CKPT106"]
    assert codes(run.replace("Norm", "Plain")) == []
    assert codes(run.replace("Norm", "nn.Module")) == []
    assert codes(run.replace(parameter, "block: Norm | Plain")) in ([], ["CKPT106"])


@pytest.mark.parametrize("kind", ["list[Norm]", "List[Norm]", "Sequence[Norm]", "tuple[Norm, ...]", "'list[Norm]'"])
def test_an_annotated_container(kind):
    run = f"def run(blocks: {kind}, x):\n    for block in blocks:\n        x = checkpoint(block, x, use_reentrant=False)\n"
    assert codes(run) == ["CKPT106"]
    assert codes(run.replace("Norm", "Plain")) == []
    assert codes(run.replace("Norm", "Unheard")) == []


def test_what_a_function_says_it_returns():
    made = """
        def make(settings) -> Norm:
            return settings.build()

        def run(settings, x):
            return checkpoint(make(settings), x, use_reentrant=False)
    """
    assert codes(made) == ["CKPT106"]
    assert codes(made.replace("settings.build()", "Plain()")) == []


def test_what_a_class_says_of_its_fields():
    holder = """
        class Net(nn.Module):
            block: Norm

            def __init__(self, block):
                super().__init__()
                self.block = block

            def forward(self, x):
                return checkpoint(self.block, x, use_reentrant=False)
    """
    assert codes(holder) == ["CKPT106"]
    assert codes(holder.replace("    block: Norm\n", "")) == []
    assert codes(holder.replace("= block\n", "= Plain()\n")) == []


def test_settings_stay_open_whatever_they_are_annotated_with():
    settings = """
        class Settings:
            use_reentrant = True

            def __call__(self):
                return self

        def run(settings: Settings, block, x, mask):
            return checkpoint(block, x, mask=mask, use_reentrant=settings.use_reentrant)
    """
    assert codes(settings) == []


def test_a_call_means_one_of_the_functions_it_may_mean():
    steps = """
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
        from torch.distributed.fsdp import fully_shard

        def wrong(model):
            for index, block in enumerate(model):
                model[index] = torch.compile(checkpoint_wrapper(block))

        def right(model):
            for block in model:
                fully_shard(block)

        def main():
            for order in (right, wrong):
                order(nn.Sequential(*[Plain() for _ in range(2)]))
    """
    assert codes(steps) == []


BLOCKS = "nn.ModuleList([Norm() for _ in range(depth)])"
NAMED = (
    "self.body = nn.ModuleDict(dict(a=nn.Linear(8, 8), h=BLOCKS, b=nn.Linear(8, 8), c=nn.ReLU(), d=nn.ReLU()))",
    'self.body = nn.ModuleDict({"a": nn.Linear(8, 8), "b": nn.ReLU(), "c": Plain(), "d": nn.GELU(), "h": BLOCKS})',
    'self.body = nn.ModuleDict({"a": nn.Linear(8, 8)})\nself.body["h"] = BLOCKS',
    'self.body = nn.ModuleDict({"h": BLOCKS})\nself.body["a"] = nn.Linear(8, 8)',
    'self.body = nn.ModuleDict()\nself.body.update({"a": nn.Linear(8, 8), "h": BLOCKS})',
    'self.body = nn.ModuleDict()\nself.body.add_module("h", BLOCKS)\nself.body.add_module("a", Plain())',
    'self.body = nn.Sequential(OrderedDict([("a", nn.Linear(8, 8)), ("h", BLOCKS)]))',
)
BY_NAME = "for block in self.body.h:\n    x = checkpoint(block, x, use_reentrant=False)\nreturn x"


@pytest.mark.parametrize("build", NAMED)
def test_a_child_is_an_attribute_of_its_container(build):
    keyed = [BY_NAME, BY_NAME.replace("self.body.h", 'getattr(self.body, "h")')]
    keyed += [BY_NAME.replace("self.body.h", 'self.body["h"]')] * ("ModuleDict" in build)
    for run in keyed:
        assert codes(net(build.replace("BLOCKS", BLOCKS), run)) == ["CKPT106"]
        assert codes(net(build.replace("BLOCKS", BLOCKS.replace("Norm", "Plain")), run)) == []


def test_another_child_is_another_module():
    build = 'self.body = nn.ModuleDict({"a": Plain(), "h": Norm()})'
    assert codes(net(build, "return self.body.h(checkpoint(self.body.a, x, use_reentrant=False))")) == []
    assert codes(net(build, 'return self.body.h(checkpoint(self.body["a"], x, use_reentrant=False))')) == []
    assert codes(net(build, "return checkpoint(self.body.h, self.body.a(x), use_reentrant=False)")) == ["CKPT106"]


PUT = {
    "a sequential": "self.stages = nn.Sequential({first}, nn.ReLU())\nself.stages[0] = {second}",
    "from the end": "self.stages = nn.Sequential(nn.ReLU(), {first})\nself.stages[-1] = {second}",
    "a module list": "layers = nn.ModuleList([{first}, nn.ReLU()])\nlayers[0] = {second}\nself.stages = nn.Sequential(*layers)",
    "a list": "layers = [nn.ReLU(), {first}]\nlayers[1] = {second}\nself.stages = nn.Sequential(*layers)",
}


@pytest.mark.parametrize("build", PUT.values(), ids=PUT)
def test_what_is_put_at_a_position_takes_the_place_of_what_was_there(build):
    assert codes(net(build.format(first="Norm()", second="Plain()"), WHOLE)) == []
    assert codes(net(build.format(first="Plain()", second="Norm()"), WHOLE)) == ["CKPT106"]


def test_what_is_put_under_a_condition_may_be_there():
    build = "layers = [nn.ReLU(), Norm()]\nif depth > 2:\n    layers[1] = Plain()\nself.stages = nn.Sequential(*layers)"
    assert codes(net(build, WHOLE)) == []
    assert codes(net(build.replace("Norm", "Other").replace("Plain", "Norm").replace("Other", "Plain"), WHOLE)) == []


OWN_LIST = """
class Blocks(nn.ModuleList):
    def __init__(self, modules=None):
        super().__init__()
        self._overrides = {}
        if modules:
            self.extend(modules)

    def extend(self, modules):
        for module in modules:
            self.append(module)

    def append(self, module):
        if isinstance(module, nn.Module):
            super().append(module)
        else:
            self._overrides[len(self)] = module
"""


@pytest.mark.parametrize(("first", "second", "found"), [("Norm", "Plain", []), ("Plain", "Norm", ["CKPT106"])])
@pytest.mark.parametrize("of", ["{}", "[{} for _ in range(depth)]"])
def test_two_objects_of_a_derived_list_hold_what_each_was_given(first, second, found, of):
    made = [f"Blocks([{name}()])" if of == "{}" else f"Blocks({of.format(name + '()')})" for name in (first, second)]
    build = f"self.first = {made[0]}\nself.stages = {made[1]}"
    run = f"for stage in self.first:\n    x = stage(x)\n{LOOP}"
    plain = OWN_LIST.split("    def extend")[0]
    assert codes(plain, net(build, run)) == found
    # Its own methods may put anything in: nothing false is said.
    assert set(codes(OWN_LIST, net(build, run))) <= set(found)
