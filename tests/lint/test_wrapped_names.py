"""Names that checkpoint wrappers interrupt, in tables, variables and expressions that a loop looks names up in."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

_HEAD = """\
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.fc, self.attn = nn.LayerNorm(d), nn.Linear(d, d), Attention(d)

class Model(nn.Module):
    def __init__(self, d=16, n=4):
        super().__init__()
        self.inp = nn.Linear(3, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(n))
        self.heads = nn.ModuleList(nn.Sequential(nn.Linear(d, d)) for _ in range(n))

"""
_BLOCKS = "apply_activation_checkpointing(m, check_fn=lambda s: isinstance(s, Block))\n"
_ATTENTION = "apply_activation_checkpointing(m, check_fn=lambda s: isinstance(s, Attention))\n"
WRONG = {
    "a table of a comprehension": """
        def groups(model, n):
            wanted = {f"blocks.{i}.fc.weight": 0.1 * i for i in range(n)}
            return [{"params": [p], "lr": wanted.get(name, 0.1)} for name, p in model.named_parameters()]  # error
    """,
    "a table of the module": """
        RATES = {"inp.weight": 0.1, "blocks.0.fc.weight": 0.2}
        def groups(model, n):
            found = []
            for name, p in model.named_parameters():
                if name in RATES:  # error
                    found.append({"params": [p], "lr": RATES[name]})
            return found
    """,
    "names that stay out of decay": """
        def groups(model, n):
            skip = set(f"blocks.{i}.norm.weight" for i in range(n))
            return [p for name, p in model.named_parameters() if name not in skip]  # error
    """,
    "a prefix of each layer": """
        def groups(model, n):
            found = []
            for i in range(n):
                prefix = f"blocks.{i}.fc"
                found.append([p for name, p in model.named_parameters() if name.startswith(prefix)])  # error
            return found
    """,
    "a conditional expression": """
        def groups(model, n):
            return [
                {"params": [p], "lr": 0.2 if name.startswith("blocks.0.fc") else 0.1}  # error
                for name, p in model.named_parameters()
            ]
    """,
    "a flag that a test gives": """
        def groups(model, n):
            for name, p in model.named_parameters():
                trains = "blocks.0.attn" in name  # error
                p.requires_grad = trains
    """,
    "a loop over prefixes with their rates": """
        def groups(model, n):
            rates = {"blocks.0.fc": 0.1, "blocks.1.fc": 0.2}
            for name, p in model.named_parameters():
                for prefix, rate in rates.items():
                    if name.startswith(prefix):  # error
                        yield {"params": [p], "lr": rate}
    """,
    "a name whose number a function reads": """
        def number(name, n):
            return int(name.split(".")[1]) if name.startswith("blocks.") else n
        def groups(model, n):
            still = {f"blocks.{i}.fc.weight" for i in range(n)}
            for name, p in model.named_parameters():
                rate = 0.0 if name in still else 0.1  # error
                yield {"params": [p], "lr": rate * number(name, n)}
    """,
    "names that a function gets": """
        def watched(model, names, hook):
            table = dict(model.named_modules())
            for name in names:
                table[name].register_forward_hook(lambda *given, name=name: hook(name, *given))
        def groups(model, n):
            return watched(model, [f"blocks.{i}.fc" for i in (0, 3)], print)  # error
    """,
    "names that a function gets by default": """
        def still(model, names=("blocks.0.fc.weight",)):
            return [name in names for name, p in model.named_parameters()]  # error
        def groups(model, n):
            return still(model)
    """,
}
RIGHT = {
    "names that a function gets of what is not wrapped": """
        def watched(model, names):
            table = dict(model.named_modules())
            return [table[name] for name in names]
        def groups(model, n):
            return watched(model, [f"heads.{i}.0" for i in (0, 3)])
    """,
    "names that a function adds to": """
        def watched(model, names):
            names += more(model)
            return [name in names for name, p in model.named_parameters()]
        def groups(model, n):
            return watched(model, ["blocks.0.fc.weight"])
    """,
    "names that a function puts right": """
        def as_built(name):
            return name.replace("._checkpoint_" + "wrapped_module", "")
        def groups(model, n):
            still = {f"blocks.{i}.fc.weight" for i in range(n)}
            for name, p in model.named_parameters():
                yield {"params": [p], "lr": 0.0 if name in still or as_built(name) in still else 0.1}
    """,
    "names that another module reads": """
        from mine import number
        def groups(model, n):
            still = {f"blocks.{i}.fc.weight" for i in range(n)}
            for name, p in model.named_parameters():
                yield {"params": [p], "lr": 0.0 if name in still or number(name) in still else 0.1}
    """,
    "whole layers": """
        def groups(model, n):
            rates = {f"blocks.{i}": 0.1 * i for i in range(n)}
            found = []
            for name, p in model.named_parameters():
                layer = ".".join(name.split(".")[:2])
                found.append({"params": [p], "lr": rates.get(layer, 0.1)})
            return found
    """,
    "names that are put right first": """
        def groups(model, n):
            wanted = {f"blocks.{i}.fc.weight": 0.1 * i for i in range(n)}
            prefix = "_checkpoint_" + "wrapped_" + "module."
            return [wanted.get(name.replace(prefix, ""), 0.1) for name, p in model.named_parameters()]
    """,
    "a table that gets the other names too": """
        def groups(model, n):
            wanted = {f"blocks.{i}.fc.weight": 0.1 * i for i in range(n)}
            wanted.update(more(wanted))
            return [wanted.get(name, 0.1) for name, p in model.named_parameters()]

        def filled(model, n):
            wanted = {f"blocks.{i}.fc.weight": 0.1 * i for i in range(n)}
            add_names_of_wrappers(wanted)
            for name, p in model.named_parameters():
                p.lr = wanted.get(name, 0.1)
    """,
    "a table that is bound anew": """
        def groups(model, n):
            wanted = {f"blocks.{i}.fc.weight": 0.1 * i for i in range(n)}
            wanted = translate(wanted)
            return [wanted.get(name, 0.1) for name, p in model.named_parameters()]
    """,
    "names beside the wrappers": """
        def groups(model, n):
            wanted = {"inp.weight": 0.1, "heads.0.0.weight": 0.2}
            return [wanted.get(name, 0.1) for name, p in model.named_parameters()]
    """,
    "an argument": """
        def groups(model, n, wanted=None):
            return [wanted.get(name, 0.1) for name, p in model.named_parameters()]
    """,
    "a table that other code fills": """
        RATES = {"blocks.0.fc.weight": 0.2}
        def add(name, rate):
            RATES[name] = rate
        def groups(model, n):
            return [RATES.get(name, 0.1) for name, p in model.named_parameters()]
    """,
    "modules": """
        def groups(model, n):
            wanted = {f"blocks.{i}.fc.weight" for i in range(n)}
            return [model.get_parameter(name) for name in wanted]
    """,
}


def _lines(code, wrap):
    body = textwrap.dedent(code)
    text = f"{_HEAD}{body}\nm = Model()\n{wrap}found = groups(m, 4)\n"
    wanted = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# error")]
    return [finding.span.line for finding in check_source(text) if finding.code == "CKPT131"], wanted


@pytest.mark.parametrize("code", WRONG.values(), ids=WRONG.keys())
def test_a_name_below_a_wrapper_matches_nothing(code):
    found, wanted = _lines(code, _BLOCKS)
    assert found == wanted
    assert wanted


@pytest.mark.parametrize("code", RIGHT.values(), ids=RIGHT.keys())
def test_other_names_are_not_reported(code):
    assert _lines(code, _BLOCKS)[0] == []


@pytest.mark.parametrize(
    "name", ["a table of a comprehension", "a table of the module", "names that stay out of decay"]
)
def test_names_of_what_is_not_wrapped_are_not_reported(name):
    assert _lines(WRONG[name], _ATTENTION)[0] == []


def test_names_below_the_wrapped_part_are():
    found, wanted = _lines(WRONG["a flag that a test gives"].replace("0.attn", "0.attn.qkv"), _ATTENTION)
    assert found == wanted


_TWO = """
def groups(m, is_block):
    apply_activation_checkpointing(m.left, check_fn=is_block)
    return [p for name, p in NAMES.named_parameters() if TEST]
"""


@pytest.mark.parametrize(
    ("names", "test", "count"),
    [
        ("m", 'name.startswith("left.blocks.0.fc")', 1),
        ("m.left", 'name.startswith("blocks.0.fc")', 1),
        ("m", 'name.startswith("right.blocks.0.fc")', 0),
        ("m.right", 'name.startswith("blocks.0.fc")', 0),
        ("m", '"blocks.0.fc" in name', 0),
    ],
)
def test_a_part_of_the_model_is_wrapped(names, test, count):
    found = check_source(_HEAD + _TWO.replace("NAMES", names).replace("TEST", test))
    assert [finding.code for finding in found] == ["CKPT131"] * count


def test_wrapping_renames_parameters_and_get_parameter_finds_them():
    torch = pytest.importorskip("torch")
    space = {}
    exec(f"{_HEAD}\nm = Model()\n{_BLOCKS}", space)
    names = [name for name, _ in space["m"].named_parameters()]
    assert "blocks.0.fc.weight" not in names
    assert {"inp.weight", "heads.0.0.weight"} <= set(names)
    assert isinstance(space["m"].get_parameter("blocks.0.fc.weight"), torch.nn.Parameter)
