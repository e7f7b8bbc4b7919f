"""Scripts that build a model and train it: what their constructors, their modes and their results decide.

Each case is a kind of program on which a run and the linter once said different things (``tests/truth``).
"""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing, checkpoint_wrapper

class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        {init}

    def forward(self, x):
        {body}
        return x + torch.tanh(self.fc(x))

class Net(nn.Module):
    def __init__(self, dim=8, use_checkpoint=False):
        super().__init__()
        self.use_checkpoint = use_checkpoint
        self.never = False
        self.stem = nn.Linear(dim, dim)
        self.blocks = nn.ModuleList([Block(dim) for _ in range(3)])

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            {use}
        return x

def main():
    model = Net({arguments})
    {prepared}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        model(torch.randn(4, 8)).mean().backward()
        optimizer.step()
    {after}

if __name__ == "__main__":
    main()
"""
PARTS = {"init": "", "body": "", "use": "x = block(x)", "arguments": "8", "prepared": "", "after": ""}
USED = "x = checkpoint(block, x, use_reentrant=False)"
BEHIND = "if {}:\n    x = checkpoint(block, x, use_reentrant=False)\nelse:\n    x = block(x)"
NORM = {"init": "self.bn = nn.BatchNorm1d(dim)", "body": "x = self.bn(x)"}
NUMPY = {"body": "x = x * np.random.rand()"}
AVERAGE = {
    "init": 'self.register_buffer("mean", torch.zeros(dim))',
    "body": (
        "if self.training:\n    with torch.no_grad():\n        self.mean.mul_(0.9).add_(0.1 * x.mean(0))\nx = x - self.mean"
    ),
}


def codes(**parts: str) -> list[str]:
    return _codes_of(SCRIPT, **parts)


def _codes_of(text: str, **parts: str) -> list[str]:
    for name, code in (PARTS | parts).items():
        place = f"{{{name}}}"
        columns = next(line for line in text.splitlines() if place in line).index("{") if name != "arguments" else 0
        text = text.replace(place, textwrap.indent(code, " " * columns).strip())
    return [finding.code for finding in check_source(text, "train.py")]


@pytest.mark.parametrize(
    ("test", "arguments", "expected"),
    [
        ("self.never", "8", []),
        ("self.use_checkpoint", "8", []),
        ("self.use_checkpoint", "8, use_checkpoint=False", []),
        ("self.use_checkpoint", "8, use_checkpoint=True", ["CKPT106"]),
        ("self.use_checkpoint and self.training", "8, False", []),
        ("self.use_checkpoint and self.training", "8, True", ["CKPT106"]),
        ("not self.never", "8", ["CKPT106"]),
    ],
)
def test_what_the_script_passes_decides_a_switch(test, arguments, expected):
    assert codes(**NORM, use=BEHIND.format(test), arguments=arguments) == expected


@pytest.mark.parametrize(
    "part",
    [
        {"prepared": "model.never = True"},
        {"prepared": 'setattr(model, "never", True)'},
        {"prepared": "setattr(model, input(), True)"},
        {"prepared": "other = [Net]"},
        {"after": "class Wide(Net):\n        pass"},
    ],
)
def test_a_switch_that_something_else_may_set_stays_open(part):
    assert "CKPT106" in codes(**NORM, use=BEHIND.format("self.never"), **part)


def test_a_switch_of_a_model_that_another_program_may_build_stays_open():
    text = SCRIPT.partition("def main")[0].replace("{use}", "if self.never:\n                {use}")
    for name, code in (PARTS | NORM | {"use": USED}).items():
        text = text.replace(f"{{{name}}}", code)
    assert [finding.code for finding in check_source(text, "model.py")] == ["CKPT106"]


@pytest.mark.parametrize("block", [NORM, NUMPY, AVERAGE])
@pytest.mark.parametrize(
    "dropped",
    [
        "_ = checkpoint(block, x, use_reentrant=False)\nx = block(x)",
        "y = checkpoint(block, x, use_reentrant=False)\nx = x * 1.0",
    ],
)
def test_a_dropped_result_is_all_that_is_wrong_with_a_checkpoint(dropped, block):
    assert codes(use=dropped, **block) == ["CKPT209"]


@pytest.mark.parametrize("block", [NORM, NUMPY])
def test_a_lost_wrapper_is_all_that_is_wrong(block):
    assert codes(prepared="[checkpoint_wrapper(block) for block in model.blocks]", **block) == ["CKPT209"]


DROPOUT = {"body": "x = F.dropout(x, 0.3, self.training)"}
ALWAYS = {"body": "x = F.dropout(x, 0.3)"}
UNPRESERVED = "x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)"


@pytest.mark.parametrize(
    ("block", "use", "code"),
    [
        (NORM, USED, "CKPT106"),
        (NORM, BEHIND.format("self.training"), "CKPT106"),
        (AVERAGE, USED, "CKPT107"),
        (DROPOUT, UNPRESERVED, "CKPT108"),
        (NUMPY, BEHIND.format("self.training"), "CKPT115"),
    ],
)
def test_a_model_that_stays_in_eval_mode_updates_and_drops_nothing(block, use, code):
    assert codes(**block, use=use, prepared="model.eval()") == []
    for mode in ("", "model.train()", "model.eval()\nmodel.train()"):
        assert codes(**block, use=use, prepared=mode) == [code]
    assert codes(**block, use=use, prepared="model.eval()", after="model.train()") == [code]


def test_what_draws_in_eval_mode_too_is_reported():
    assert codes(**ALWAYS, use=UNPRESERVED, prepared="model.eval()") == ["CKPT108"]
    assert codes(**NUMPY, use=USED, prepared="model.eval()") == ["CKPT115"]


@pytest.mark.parametrize("function", ["lambda h, m=block: m(h)", "lambda hs, m=block: m(hs[0])"])
def test_a_module_that_a_lambda_binds_early_is_looked_into(function):
    given = "[x]" if "hs" in function else "x"
    assert codes(**NUMPY, use=f"x = checkpoint({function}, {given}, use_reentrant=False)") == ["CKPT115"]


COUNTER = {"init": "self.calls = 0", "body": "self.calls += 1\nx = x / self.calls"}


def test_a_counter_that_the_result_depends_on_is_state():
    assert codes(**COUNTER, use=USED) == ["CKPT107"]
    assert codes(init="self.calls = 0", body="self.calls += 1", use=USED) == []


def test_a_counter_is_found_behind_wrappers():
    wrap = "for i, block in enumerate(model.blocks):\n    model.blocks[i] = checkpoint_wrapper(block)"
    apply = "apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, Block))"
    assert codes(**COUNTER, prepared=wrap) == codes(**COUNTER, prepared=apply) == ["CKPT107"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("nn.MultiheadAttention", ["CKPT208"]),
        ("nn.Conv2d", ["CKPT208"]),
        ("nn.Linear", ["CKPT403"]),
        ("nn.Module", ["CKPT404"]),
    ],
)
def test_a_check_for_a_class_that_the_model_does_not_hold(asked, expected):
    apply = f"apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, {asked}))"
    assert codes(prepared=apply) == expected


REENTRANT = "x = checkpoint(block, {}, use_reentrant=True)"


def test_reentrant_inputs_that_need_no_gradient_lose_those_of_the_block():
    assert codes(use=REENTRANT.format("x.detach()")) == ["CKPT104", "CKPT121"]
    assert codes(use="x = checkpoint(lambda hs, m=block: m(hs[0]), [x], use_reentrant=True)") == ["CKPT104"]
    assert codes(use=REENTRANT.format("x")) == []
    text = SCRIPT.replace("self.stem = nn.Linear(dim, dim)", "self.stem = nn.Identity()")
    assert "CKPT104" in _codes_of(text, use=REENTRANT.format("x"))
    partly = "for block in model.blocks[:1]:\n    block.requires_grad_(False)"
    assert "CKPT104" in _codes_of(text, use=REENTRANT.format("x"), prepared=partly)
    assert "CKPT104" not in _codes_of(text, use=REENTRANT.format("x"), prepared="model.requires_grad_(False)")


@pytest.mark.parametrize("functions", ["self.blocks", "list(self.blocks)", "nn.Sequential(*self.blocks)"])
def test_more_segments_than_modules_raise(functions):
    text = SCRIPT.replace("for block in self.blocks:\n            {use}", "x = checkpoint_sequential({use})")
    call = f"{functions}, {{}}, x, use_reentrant=False"
    assert _codes_of(text, use=call.format(4)) == ["CKPT310"]
    assert _codes_of(text, use=call.format(3)) == []


GROWN = [
    "self.blocks = nn.ModuleList()\n        for _ in range(3):\n            self.blocks.append(Block(dim))",
    "found = []\n        for i in range(3):\n            found.append(Block(dim))\n        self.blocks = nn.ModuleList(found)",
    "self.blocks = nn.Sequential()\n        for i in range(3):\n            self.blocks.add_module(str(i), Block(dim))",
    "self.blocks = nn.Sequential(OrderedDict((str(i), Block(dim)) for i in range(3)))",
    "found = [Block(dim) for _ in range(4)]\n        found.pop()\n        self.blocks = nn.ModuleList(found)",
]


@pytest.mark.parametrize("container", GROWN)
def test_modules_are_counted_however_they_are_put_together(container):
    text = SCRIPT.replace("for block in self.blocks:\n            {use}", "x = checkpoint_sequential({use})")
    text = text.replace("self.blocks = nn.ModuleList([Block(dim) for _ in range(3)])", container)
    text = "from collections import OrderedDict\n" + text
    call = "self.blocks, {}, x, use_reentrant=False"
    assert _codes_of(text, use=call.format(4)) == ([] if "pop" in container else ["CKPT310"])
    assert _codes_of(text, use=call.format(3)) == []


def test_one_segment_is_not_run_again():
    text = SCRIPT.replace("for block in self.blocks:\n            {use}", "x = checkpoint_sequential({use})")
    assert _codes_of(text, **NUMPY, use="self.blocks, 1, x, use_reentrant=False") == ["CKPT210"]
    assert _codes_of(text, **NUMPY, use="self.blocks, 2, x, use_reentrant=False") == ["CKPT115"]


def test_what_the_region_seeds_itself_is_drawn_again():
    drawn = "x = x * torch.rand_like(x)"
    assert codes(body=drawn, use=UNPRESERVED) == ["CKPT108"]
    assert codes(body=f"torch.manual_seed(7)\n{drawn}", use=UNPRESERVED) == ["CKPT122"]


def test_a_switch_that_an_unused_method_sets_stays_off():
    text = SCRIPT.replace("def main", "    def enable(self):\n        self.never = True\n\ndef main")
    assert _codes_of(text, **NORM, use=BEHIND.format("self.never")) == []
    assert _codes_of(text, **NORM, use=BEHIND.format("self.never"), prepared="model.enable()") == ["CKPT106"]


def test_modules_that_are_set_by_name_leave_switches_as_they_are():
    by_name = 'setattr(self, f"part{0}", nn.Linear(dim, dim))\n        self.stem = nn.Linear(dim, dim)'
    text = SCRIPT.replace("self.stem = nn.Linear(dim, dim)", by_name)
    assert _codes_of(text, **NORM, use=BEHIND.format("self.never")) == []


def test_blocks_in_eval_mode_update_nothing():
    for block in (NORM, AVERAGE):
        assert codes(**block, use=USED, prepared="model.train()\nmodel.blocks.eval()") == []
    assert codes(**AVERAGE, use=USED, prepared="model.blocks.eval()\nmodel.train()") == ["CKPT107"]


def test_a_block_that_the_checkpoint_hands_to_a_method_is_looked_into():
    text = SCRIPT.replace("def main", "    def run(self, module, x):\n        return module(x)\n\ndef main")
    assert _codes_of(text, **NUMPY, use="x = checkpoint(self.run, block, x, use_reentrant=False)") == ["CKPT115"]


def test_a_module_dict_of_a_comprehension_is_looked_into():
    held = "self.blocks = nn.ModuleDict({str(i): Block(dim) for i in range(3)})"
    text = SCRIPT.replace("self.blocks = nn.ModuleList([Block(dim) for _ in range(3)])", held)
    assert _codes_of(text.replace("in self.blocks:", "in self.blocks.values():"), **NUMPY, use=USED) == ["CKPT115"]


def test_an_attribute_that_the_loop_sets_is_read_late():
    assert codes(use="self.now = block\nx = checkpoint(lambda h: self.now(h), x, use_reentrant=False)") == ["CKPT105"]
    assert codes(use="x = checkpoint(lambda h, b=block: b(self.stem(h)), x, use_reentrant=False)") == []


WRAPPED = (
    "from functools import partial\n"
    "    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl\n"
    "    wrap = partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.{})\n"
    "    apply_activation_checkpointing(model, checkpoint_wrapper_fn=wrap, check_fn=lambda m: isinstance(m, Block))"
)
WITHOUT_STEM = SCRIPT.replace("self.stem = nn.Linear(dim, dim)", "self.stem = nn.Identity()")
FIRST_FROZEN = "for block in list(model.blocks)[:{}]:\n    block.requires_grad_(False)"


@pytest.mark.parametrize(("variant", "expected"), [("REENTRANT", ["CKPT104"]), ("NO_REENTRANT", [])])
def test_modules_wrapped_reentrant_behind_data_lose_their_gradients(variant, expected):
    prepared = WRAPPED.format(variant).replace("\n    ", "\n")
    assert _codes_of(WITHOUT_STEM, prepared=prepared) == expected
    assert codes(prepared=prepared) == []


@pytest.mark.parametrize(("variant", "expected"), [("REENTRANT", ["CKPT116"]), ("NO_REENTRANT", [])])
def test_modules_wrapped_reentrant_that_return_a_dict(variant, expected):
    text = SCRIPT.replace("return x + torch.tanh(self.fc(x))", 'return {"out": x + torch.tanh(self.fc(x))}')
    prepared = WRAPPED.format(variant).replace("\n    ", "\n")
    assert _codes_of(text, prepared=prepared, use='x = block(x)["out"]') == expected


def test_a_module_among_the_inputs_needs_no_gradient():
    text = WITHOUT_STEM.replace("def main", "    def run(self, module, x):\n        return module(x)\n\ndef main")
    assert _codes_of(text, use="x = checkpoint(self.run, block, x, use_reentrant=True)") == ["CKPT104"]


@pytest.mark.parametrize(
    ("test", "lost", "lost_when_the_first_is_frozen"),
    [("i % 2 == 0", True, False), ("i % 2", False, False), ("i >= 1", False, False), ("i >= 0", True, False)],
)
def test_only_the_first_turn_of_a_loop_starts_from_data(test, lost, lost_when_the_first_is_frozen):
    text = WITHOUT_STEM.replace("for block in self.blocks", "for i, block in enumerate(self.blocks)")
    use = BEHIND.format(test).replace("False", "True")
    assert _codes_of(text, use=use) == ["CKPT104"] * lost
    assert _codes_of(text, use=use, prepared=FIRST_FROZEN.format(1)) == ["CKPT104"] * lost_when_the_first_is_frozen


def test_a_region_that_no_gradient_comes_to_is_not_run_again():
    assert _codes_of(WITHOUT_STEM, **NORM, use=REENTRANT.format("x")) == ["CKPT104"]
    second = BEHIND.format("i % 2 == 0").replace("False", "True")
    text = WITHOUT_STEM.replace("for block in self.blocks", "for i, block in enumerate(self.blocks)")
    assert _codes_of(text, **NORM, use=second) == ["CKPT104", "CKPT106"]


@pytest.mark.parametrize(("frozen", "expected"), [(1, ["CKPT105"]), (2, [])])
def test_a_name_read_late_is_right_for_the_last_block(frozen, expected):
    late = "x = checkpoint(lambda h: block(h), x, use_reentrant=False)"
    assert _codes_of(WITHOUT_STEM, use=late, prepared=FIRST_FROZEN.format(frozen)) == expected
    assert codes(use=late, prepared=FIRST_FROZEN.format(frozen)) == ["CKPT105"]


LANGUAGE_MODEL = """
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("base")
{enabled}
{mode}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in batches:
    loss = model(**batch).loss
    {between}
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("part", ["model", "model.base_model", "model.model"])
def test_a_model_is_checkpointed_through_the_part_that_holds_its_layers(part):
    enabled = f"{part}.gradient_checkpointing_enable()"
    generates = "model.generate(batch)"
    cases = (("", "", ["CKPT203"]), ("model.train()", "", []), ("model.train()", generates, ["CKPT112"]))
    for mode, between, expected in cases:
        text = LANGUAGE_MODEL.format(enabled=enabled, mode=mode, between=between)
        assert [finding.code for finding in check_source(text, "train.py")] == expected


@pytest.mark.parametrize(
    ("frozen", "expected"),
    [
        ("model.stem.requires_grad_(False)", []),
        ("for p in model.stem.parameters():\n    p.requires_grad = False", []),
        ("model.stem.fc.requires_grad_(False)", ["CKPT106"]),
        ("", ["CKPT106"]),
    ],
)
def test_a_frozen_region_behind_data_is_not_run_again(frozen, expected):
    text = SCRIPT.replace("nn.Linear(dim, dim)\n        self.blocks", "Block(dim)\n        self.blocks")
    text = text.replace("x = self.stem(x)", "x = checkpoint(self.stem, x, use_reentrant=False)")
    assert _codes_of(text, **NORM, prepared=frozen) == expected
