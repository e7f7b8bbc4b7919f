"""What the facts say about small programs."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.facts.interpreter.program import read_program
from hf_ckpt.lint.facts.values import ABSENT, Const, Instance, Ref, Result, Unknown, equals, is_absent, options


def program(code: str):
    return read_program(textwrap.dedent(code), "example.py")


def probe(code: str):
    """The first argument of every call of the builtin `print`, in program order."""
    return [call.args[0] for call in program(code).calls if call.name == "builtins.print"]


def constant(code: str):
    (value,) = probe(code)
    return value.value if isinstance(value, Const) else type(value).__name__


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("x = 1\nx = 2\nprint(x)", 2),
        ("a = b = 3\nprint(a + b)", 6),
        ("a, (b, c) = 1, (2, 3)\nprint(c)", 3),
        ("if flag:\n    x = 1\nelse:\n    x = 1\nprint(x)", 1),
        ("if False:\n    x = 1\nelse:\n    x = 2\nprint(x)", 2),
        ("x = 1 if True else 2\nprint(x)", 1),
        ("x = None or 4\nprint(x)", 4),
        ("def f(a, b=5):\n    return b\nprint(f(1))", 5),
        ("def f(*args, **kwargs):\n    return g(*args, **kwargs)\ndef g(a, b):\n    return b\nprint(f(1, b=7))", 7),
        ("f = lambda a: a\nprint(f(8))", 8),
        ("from functools import partial\ndef f(a, b):\n    return b\nprint(partial(f, 1)(9))", 9),
        ("class C:\n    x = 1\n    def __init__(self):\n        self.y = 2\nprint(C().y)", 2),
        ("class A:\n    x = 1\nclass B(A):\n    pass\nprint(B().x)", 1),
        (
            "class A:\n    def f(self):\n        return 3\nclass B(A):\n    def f(self):\n        return super().f()\nprint(B().f())",
            3,
        ),
        ("from dataclasses import dataclass\n@dataclass\nclass C:\n    x: int = 1\nprint(C(x=2).x)", 2),
        ("from dataclasses import dataclass\n@dataclass\nclass C:\n    x: int = 1\nprint(C().x)", 1),
        ("d = dict(a=1)\nd['a'] = 2\nprint(d['a'])", 2),
        ("d = {'a': 1}\nd.update(a=3)\nprint(d.get('a'))", 3),
        ("d = {**{'a': 1}, 'b': 2} | {'a': 5}\nprint(d['a'])", 5),
        ("d = {}\nprint(d.get('a', 4))", 4),
        ("class C: pass\nc = C()\nc.x = 1\nsetattr(c, 'x', 2)\nprint(c.x)", 2),
        ("x = 1\ndef f():\n    global x\n    x = 2\nf()\nprint(x)", 2),
        ("for x in [5]:\n    print(x)", 5),
        ("for i, x in enumerate([5]):\n    print(x)", 5),
        ("with open('f') as f:\n    x = 1\nprint(x)", 1),
        ("try:\n    x = 1\nexcept ValueError:\n    raise\nprint(x)", 1),
        ("def f():\n    if flag:\n        return 2\n    return 2\nprint(f())", 2),
    ],
)
def test_constants_are_followed(code, value):
    assert constant(code) == value


@pytest.mark.parametrize(
    "code",
    [
        "print(x)",
        "def f(x):\n    print(x)",
        "x = 1\ndel x\nprint(x)",
        "x = 1\nx += 1\nprint(x)",
        "x = 1\ndef f():\n    print(x)\n    x = 2",
        "async def f(x): return x\nprint(f(1))",
        "def f(x): yield x\nfor x in f(1): print(x)",
        "def f():\n    x = 1\n    while x:\n        yield x, {'a': x}\n        x += 1\nfor x, d in f(): print(d['a'])",
        "@register\ndef f(x):\n    return 1\nprint(f(1))",
        "x = 1\nexec(open('config').read())\nprint(x)",
        "if flag:\n    x = 1\nelse:\n    x = 2\nprint(x)",
        "try:\n    x = 1\nexcept ValueError:\n    x = 2\nprint(x)",
        "d = {'a': 1}\nif flag:\n    d['a'] = 2\nprint(d['a'])",
        "from dataclasses import dataclass\nfrom transformers import HfArgumentParser\n@dataclass\nclass C:\n    x: int = 1\n"
        "(c,) = HfArgumentParser(C).parse_args_into_dataclasses()\nprint(c.x)",
    ],
)
def test_what_is_not_certain_is_not_known(code):
    (value,) = probe(code)
    assert equals(value, 1) is None


@pytest.mark.parametrize(("base", "kind"), [("torch.nn.Module", Instance), ("transformers.Trainer", Result)])
def test_a_module_is_what_its_methods_give_back_and_a_trainer_is_not(base, kind):
    (value,) = probe(f"import torch, transformers\nclass Own({base}):\n    pass\nprint(Own().train())")
    assert isinstance(value, kind)


def test_branches_meet_in_a_choice():
    (value,) = probe("if flag:\n    x = 1\nelse:\n    x = 2\nprint(x)")
    assert [option.value for option in options(value)] == [1, 2]


def test_a_branch_that_leaves_does_not_count():
    assert constant("x = 1\nif flag:\n    x = 2\n    raise SystemExit\nprint(x)") == 1


def test_conditions_exclude_each_other():
    code = """
        if config.fsdp:
            first()
        if not config.fsdp:
            second()
        else:
            third()
    """
    first, second, third = program(code).calls
    assert first.place.excludes(second.place)
    assert not first.place.excludes(third.place)


@pytest.mark.parametrize(
    ("code", "deeper"),
    [
        ("first()\nif a:\n    second()", [False, True]),
        ("if a:\n    first()\nsecond()", [True, False]),
        ("if a:\n    first()\n    if b:\n        second()", [False, True]),
        ("if a:\n    if b:\n        first()\n    second()", [True, False]),
        ("if a:\n    first()\nelse:\n    second()", [True, True]),
        ("if a:\n    first()\n    second()", [False, False]),
    ],
)
def test_a_place_is_deeper_than_one_without_its_conditions(code, deeper):
    first, second = program(code).calls
    assert [first.place.deeper_than(second.place), second.place.deeper_than(first.place)] == deeper


def test_a_write_without_condition_is_certain_for_an_object_made_under_one():
    code = """
        if flag:
            model = load()
        model.use_cache = False
        print(model.use_cache)
    """
    assert constant(code) is False


def test_what_follows_an_early_return_has_its_condition():
    code = """
        def f(model):
            if model.ready:
                return
            late()
        def g(model):
            if model.ready:
                early()
    """
    late, early = (call for call in program(code).calls)
    assert late.place.excludes(early.place)


def test_imports_resolve_to_full_names():
    code = """
        import torch
        import torch.utils.checkpoint as cp
        from torch.utils import checkpoint
        from .checkpoint import checkpoint as own
        torch.compile()
        cp.checkpoint()
        checkpoint.checkpoint()
        own()
    """
    assert [call.name for call in program(code).calls] == [
        "torch.compile",
        "torch.utils.checkpoint.checkpoint",
        "torch.utils.checkpoint.checkpoint",
        ".checkpoint.checkpoint",
    ]


def test_arguments_are_absent_only_when_certainly_not_given():
    code = """
        KW = {"a": 1}
        f(1)
        f(**KW)
        f(**unknown)
        f(*unknown)
    """
    plain, known, keywords, positions = program(code).calls
    assert is_absent(plain.argument(1, "a")) is True
    assert equals(known.argument(1, "a"), 1) is True
    assert is_absent(keywords.argument(1, "a")) is None
    assert is_absent(positions.argument(1, "a")) is None
    assert plain.keyword("b") is ABSENT


def test_parsers_give_objects_whose_fields_are_open():
    code = """
        from transformers import HfArgumentParser, TrainingArguments
        parser = HfArgumentParser((Other, TrainingArguments))
        other, args = parser.parse_args_into_dataclasses()
        print(args)
    """
    (value,) = probe(code)
    assert isinstance(value, Result)
    assert value.call.name == "transformers.TrainingArguments"
    assert value.call.open_kwargs


def test_methods_see_what_the_constructor_stored():
    code = """
        import torch.nn as nn
        class Net(nn.Module):
            def forward(self, x):
                print(self.layer)
            def __init__(self):
                self.layer = nn.Linear(1, 1)
    """
    (value,) = probe(code)
    assert isinstance(value, Result)
    assert value.call.func.name == "torch.nn.Linear"


def test_an_object_is_the_same_wherever_it_is_named():
    code = """
        class Net: pass
        def build():
            return Net()
        def main():
            model = build()
            print(model)
            use(model)
        def use(net):
            print(net)
        main()
    """
    first, second = probe(code)
    assert isinstance(first, Instance)
    assert first is second


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    return f()\nprint(f())",
        "def f(n):\n    return g(n)\ndef g(n):\n    return f(n)\nprint(f(1))",
        "class A(B): pass\nclass B(A): pass\nprint(A().x)",
        "x = x\nprint(x)",
        "f = lambda: f()\nprint(f())",
    ],
)
def test_loops_in_the_program_end(code):
    (value,) = probe(code)
    assert isinstance(value, Unknown | Ref | Result) or value.name == "x"


def test_deep_call_chains_are_cut_not_followed_forever():
    lines = ["def f0(): return 1"] + [f"def f{n}(): return f{n - 1}() or f{n - 1}()" for n in range(1, 30)]
    found = program("\n".join([*lines, "f29()"]))
    assert len(found.calls) < 10_000


def test_what_constructors_build_by_a_helper_is_known_however_many_call_it():
    blocks = "\n".join(
        f"class Block{n}(nn.Module):\n    def __init__(self):\n        self.norm = conv_norm({n})" for n in range(8)
    )
    prints = "\n".join(f"print(Block{n}().norm)" for n in range(8))
    code = f"""import torch.nn as nn
def norm(width):
    return nn.BatchNorm2d(width) if width % 2 else nn.GroupNorm(1, width)
def conv_norm(width):
    return norm(width)
{blocks}
{prints}
"""
    *_, even, odd = probe(code)
    assert [it.call.name for it in (even, odd)] == ["torch.nn.GroupNorm", "torch.nn.BatchNorm2d"]


def test_both_ways_of_a_switch_that_others_set():
    code = """
        class Net:
            def __init__(self):
                self.checkpointing = False
                self.depth = 4
                if self.checkpointing:
                    never()
            def forward(self, x):
                if self.depth == 0:
                    never()
                if self.checkpointing and self.training:
                    return first(x)
                return second(x)
    """
    names = {getattr(call.node.func, "id", "") for call in program(code).calls}
    assert {"first", "second"} <= names
    assert "never" not in names
