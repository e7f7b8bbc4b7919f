"""Assignments in other spellings: two in one statement, annotated ones, and what stands around the statements."""

from __future__ import annotations

import ast

import pytest
from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.facts.plain_syntax import in_plain_syntax
from hf_ckpt.lint.facts.straight import only_value

HEAD = "from torch.utils.checkpoint import checkpoint\n"


def plain(code: str) -> str:
    return ast.unparse(in_plain_syntax(ast.parse(code), code))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a, b = 1, f(x)", "a = 1\nb = f(x)"),
        ("self.a, self.b = f(), g()", "self.a = f()\nself.b = g()"),
        ("x: Block = f()", "x = f()"),
        ("def f():\n    for i in y:\n        [a, b] = i, 2", "def f():\n    for i in y:\n        a = i\n        b = 2"),
        ("try:\n    a, b = 1, 2\nexcept E:\n    c: int = 3", "try:\n    a = 1\n    b = 2\nexcept E:\n    c = 3"),
        ("setattr(self.part, 'steps', f(x))", "self.part.steps = f(x)"),
        (
            "for m in [m for m in net.modules() if f(m)]:\n    m.eval()",
            "for m in net.modules():\n    if f(m):\n        m.eval()",
        ),
        (
            "for p in (p for n, p in net.named_parameters() if 'lora' in n if ok):\n    g(p)",
            "for n, p in net.named_parameters():\n    if 'lora' in n and ok:\n        g(p)",
        ),
        (
            "for q in [p for m in ms for p in m.parameters() if f(p)]:\n    g(q)",
            "for m in ms:\n    for q in m.parameters():\n        if f(q):\n            g(q)",
        ),
        (
            "for m in filter(lambda it: f(it), list(net.modules())):\n    g(m)",
            "for m in net.modules():\n    if f(m):\n        g(m)",
        ),
        ("for k, m in dict(net.named_modules()).items():\n    g(m)", "for k, m in net.named_modules():\n    g(m)"),
        ("f(x, **{'a': 1, 'b': 2}, c=3)", "f(x, a=1, b=2, c=3)"),
        ("f(**dict(a=1, **{'b': 2}))", "f(a=1, b=2)"),
        ("match x:\n    case 1:\n        a, b = 1, 2", "match x:\n    case 1:\n        a = 1\n        b = 2"),
    ],
)
def test_becomes_plain(written, meant):
    assert plain(written) == meant


@pytest.mark.parametrize(
    "written",
    [
        "a, b = b, a",
        "setattr(self, name, 1)",
        "setattr(self, 'two words', 1)",
        "for m in [m for m in ms if f(m)]:\n    g(m)\nelse:\n    h()",
        "for m in [m for m, n in ms if f(n)]:\n    g(m, n)",
        "for p in [p for m in ms for p in m if f(p)]:\n    break",
        "for m in [g(m) for m in ms if f(m)]:\n    h(m)",
        "for m in filter(f, ms):\n    g(m)",
        "for m in list(ms):\n    g(m)",
        "a, b = f(), a + 1",
        "self.a, b = f(), self.a",
        "a, *b = (f(), 2)",
        "a[0], a[1] = (1, 2)",
        "a, b = c",
        "a = b, c = (1, 2)",
        "f(**{'a': 1, **more})",
        "f(**dict(more, a=1))",
        "f(**{name: 1})",
        "x: Block",
        "class Settings:\n    rate: float = 0.1",
    ],
)
def test_stays(written):
    assert plain(written) == ast.unparse(ast.parse(written))


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("return f(x)", "f(x)"),
        ("'''Text.'''\n    y = f(x)\n    return y", "f(x)"),
        ("with autocast():\n        return f(x)", "f(x)"),
        ("with autocast():\n        y = f(x)\n    return y", "f(x)"),
        ("try:\n        return f(x)\n    finally:\n        log()", "f(x)"),
        ("try:\n        return f(x)\n    except ValueError:\n        return None", None),
        ("y = f(x)\n    return x", None),
        ("log()\n    return f(x)", None),
        ("if x:\n        return f(x)", None),
    ],
)
def test_the_one_value_of_a_function(body, value):
    function = ast.parse(f"def run(x):\n    {body}").body[0]
    found = only_value(function)
    assert (None if found is None else ast.unparse(found)) == value


def test_a_finding_in_one_of_two_assignments_has_its_place_and_fix():
    code = HEAD + "def forward(block, x):\n    y, n = checkpoint(block, x), 0\n    return y, n\n"
    (finding,) = check_source(code)
    assert (finding.code, finding.span.line) == ("CKPT101", 3)
    assert finding.fix.edits


def test_swapped_inputs_are_no_two_assignments():
    code = (
        HEAD
        + "def forward(block, x, y):\n    x, y = checkpoint(block, y, use_reentrant=False), x.detach()\n    return x + y\n"
    )
    assert not check_source(code)
