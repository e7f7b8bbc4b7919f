"""Shapes of real training programs: loops over layers, class hierarchies, functions in order, conditions."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
"""
NORM = """
class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        return self.norm(x)
"""


def codes(*parts: str, notes: bool = False) -> list[str]:
    text = HEAD + "".join(textwrap.dedent(part) for part in parts)
    return [finding.code for finding in check_source(text, "train.py", notes=notes)]


LISTS = (
    "nn.ModuleList([Norm() for _ in range(depth)])",
    "nn.ModuleList(Norm() for _ in range(depth))",
    "nn.ModuleList()\n        for _ in range(depth):\n            self.layers.append(Norm())",
    "nn.ModuleList([])\n        self.layers.extend([Norm() for _ in range(depth)])",
    "nn.Sequential(*[Norm() for _ in range(depth)])",
    "nn.ModuleList([nn.Linear(8, 8), Norm()])",
)
LOOPS = (
    "for layer in self.layers:\n            x = checkpoint(layer, x, use_reentrant=False)",
    "for i, layer in enumerate(self.layers):\n            x = checkpoint(layer, x, use_reentrant=False)",
    "for layer in self.layers[:4]:\n            x = checkpoint(layer, x, use_reentrant=False)",
    "for i in range(len(self.layers)):\n            x = checkpoint(self.layers[i], x, use_reentrant=False)",
    "for layer, scale in zip(self.layers, self.scales):\n            x = checkpoint(layer, x, use_reentrant=False) * scale",
    "for layer in reversed(self.layers):\n            x = checkpoint(layer, x, use_reentrant=False)",
    "for layer in self.layers:\n            x = self.run(layer, x)",
)


@pytest.mark.parametrize("layers", LISTS[:4])
@pytest.mark.parametrize("loop", LOOPS)
def test_loops_over_layers(layers, loop):
    net = """
class Net(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = LAYERS

    def run(self, layer, x):
        return checkpoint(layer, x, use_reentrant=False)

    def forward(self, x):
        LOOP
        return x
"""
    assert "CKPT106" in codes(NORM, net.replace("LAYERS", layers).replace("LOOP", loop))


def test_a_method_of_a_subclass_runs_in_the_forward_of_its_base():
    base = """
        class Base(nn.Module):
            def body(self, x):
                raise NotImplementedError

            def forward(self, x):
                return checkpoint(self.body, x, use_reentrant=False)
    """
    child = """
        class Child(Base):
            def __init__(self):
                super().__init__()
                self.norm = nn.BatchNorm1d(8)

            def body(self, x):
                return self.norm(x)
    """
    assert codes(base) == []
    assert "CKPT106" in codes(base, child)


def test_super_means_the_class_above_the_one_that_says_it():
    chain = """
        class Second(Norm):
            def forward(self, x):
                return super().forward(x) + x

        class Third(Second):
            def forward(self, x):
                return super().forward(x) * 2

        def step(x):
            return checkpoint(Third(), x, use_reentrant=False)
    """
    assert codes(NORM, chain) == ["CKPT106"]


def test_an_application_object_brings_model_and_trainer_together():
    app = """
        class App:
            def __init__(self):
                self.args = TrainingArguments("o", gradient_checkpointing=True)
                self.model = AutoModelForCausalLM.from_pretrained("x")

            def prepare(self):
                self.model.gradient_checkpointing_enable({"use_reentrant": True})

            def run(self):
                self.prepare()
                Trainer(model=self.model, args=self.args).train()
        RUN
    """
    assert codes(app.replace("RUN", "App().run()")) == ["CKPT202"]
    assert codes(app.replace("RUN", 'if __name__ == "__main__":\n            App().run()')) == ["CKPT202"]


def test_functions_called_in_order():
    script = """
        def arguments():
            return TrainingArguments("o")

        def tune(args):
            args.gradient_checkpointing = True

        def main():
            args = arguments()
            tune(args)
            Trainer(model=AutoModelForCausalLM.from_pretrained("x"), args=args).train()

        main()
    """
    assert codes(script) == ["CKPT201"]


def test_layers_wrapped_one_by_one_after_the_model_was_enabled():
    script = """
        model = AutoModelForCausalLM.from_pretrained("x")
        model.gradient_checkpointing_enable()
        for i, layer in enumerate(model.model.layers):
            model.model.layers[i] = checkpoint_wrapper(layer, checkpoint_impl=CheckpointImpl.REENTRANT)
    """
    assert codes(script) == ["CKPT402"]


#: The enabling is under the first condition, the Trainer that replaces it under the second.
APART = (
    ("is_fsdp_enabled()", "not is_fsdp_enabled()"),
    ("not config.fsdp", "config.fsdp"),
    ("config.enable and not config.fsdp", "config.fsdp"),
    ("config.enable and not config.fsdp", "config.fsdp and config.train"),
    ("config.fsdp or config.deepspeed", "not (config.fsdp or config.deepspeed)"),
    ("config.fsdp", "not (config.fsdp or config.deepspeed)"),
    ('config.kind == "fsdp"', 'config.kind == "ddp"'),
    ('config.kind == "fsdp"', 'config.kind != "fsdp"'),
    ('config.kind == "fsdp"', 'config.kind in ("ddp", "none")'),
    ('config.kind in ("fsdp", "fsdp2")', 'config.kind not in ("fsdp", "fsdp2", "tp")'),
    ("config.kind is None", "config.kind"),
    ("config.kind is None", "config.kind is not None"),
    ('config.kind == "fsdp"', "not config.kind"),
)
TOGETHER = (
    ("config.fsdp", "config.fsdp"),
    ("config.enable", "not config.fsdp"),
    ("config.enable or not config.fsdp", "config.fsdp"),
    ("config.fsdp or config.deepspeed", "not config.fsdp"),
    ('config.kind == "fsdp"', 'config.kind != "ddp"'),
    ('config.kind == "fsdp"', 'config.kind in ("fsdp", "none")'),
    ('config.kind != "fsdp"', 'config.kind != "ddp"'),
    ("config.kind is not None", "not config.kind"),
    ('config.kind == "fsdp"', 'other.kind == "ddp"'),
)
CONDITIONAL = """
def main(config, other):
    model = AutoModelForCausalLM.from_pretrained("x")
    if {0}:
        model.gradient_checkpointing_enable({{"use_reentrant": True}})
    if {1}:
        Trainer(model=model, args=TrainingArguments("o", gradient_checkpointing=True)).train()
"""


@pytest.mark.parametrize(("first", "second"), APART)
def test_conditions_that_exclude_each_other(first, second):
    assert codes(CONDITIONAL.format(first, second)) == []
    assert codes(CONDITIONAL.format(second, first)) == []


@pytest.mark.parametrize(("first", "second"), TOGETHER)
def test_conditions_that_can_hold_together(first, second):
    # Both are open: what needs them together is a note.
    assert codes(CONDITIONAL.format(first, second), notes=True) == ["CKPT202"]
    assert codes(CONDITIONAL.format(second, first), notes=True) == ["CKPT202"]


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ('"fsdp"', '"ddp"', []),
        ('"fsdp" | "fsdp2"', '"ddp"', []),
        ('"fsdp"', "_", []),
        ("None", "_", []),
        ("{'a': 1}", "{'b': 2}", ["CKPT202"]),
    ],
)
def test_cases_of_a_match(first, second, found):
    script = f"""
def main(config):
    model = AutoModelForCausalLM.from_pretrained("x")
    match config.kind:
        case {first}:
            model.gradient_checkpointing_enable({{"use_reentrant": True}})
        case {second}:
            Trainer(model=model, args=TrainingArguments("o", gradient_checkpointing=True)).train()
"""
    assert codes(script, notes=True) == found


@pytest.mark.parametrize("flag", ["torch.version.hip", "settings.reentrant", "REENTRANT", "torch.cuda.is_available()"])
def test_an_imported_flag_is_not_known(flag):
    script = f"""
import torch
import settings
from settings import REENTRANT
model = AutoModelForCausalLM.from_pretrained("x")
args = TrainingArguments("o", gradient_checkpointing=True) if {flag} else TrainingArguments("o")
if {flag}:
    args = TrainingArguments("o", gradient_checkpointing=True)
else:
    model.gradient_checkpointing_enable({{"use_reentrant": True}})
    args = TrainingArguments("o")
Trainer(model=model, args=args).train()
"""
    assert codes(script) == []
