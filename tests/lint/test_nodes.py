"""Trees are walked by the fields that hold nodes: nothing that `ast.walk` finds is missed."""

import ast

import pytest
from hf_ckpt.lint.facts.interpreter.program import read_program
from hf_ckpt.lint.facts.nesting import Nesting
from hf_ckpt.lint.facts.nodes import all_nodes, extent, is_inside
from hf_ckpt.lint.facts.scopes import bound_names
from hf_ckpt.lint.facts.values import Const

from tests.lint.test_prefilter import PACKAGES, sources

SKIPPED = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
EVERYTHING = """\
async def f(a, *b: int, c=1, **d) -> str:
    global g
    import x.y, z as w
    with open(a) as h, k() as (i, [j, *l]):
        pass
    async for m in n:
        o: int = 1
        del p, q.r, s[0]
    try:
        t += u
    except (V, W) as v:
        raise X from Y
    match a:
        case {"k": aa, **rest} if bb:
            pass
        case [cc, *dd] | Point(x=ee) as ff:
            pass
    class gg(hh, metaclass=ii):
        jj = 1
    def kk(): ll = 1
    return [mm for mm in nn if oo], lambda pp: qq, f"{rr!r:>{ss}}"
"""


def everything(node):
    return {id(inner) for inner in ast.walk(node) if not isinstance(inner, SKIPPED)}


def test_every_node_is_found():
    tree = ast.parse(EVERYTHING)
    assert {id(node) for node in all_nodes(tree)} == everything(tree)


def test_names_are_bound_by_statements_alone_where_there_is_no_walrus():
    function = ast.parse(EVERYTHING).body[0]
    bound = {"x", "w", "h", "i", "j", "l", "m", "o", "p", "t", "v", "aa", "cc", "dd", "ee", "ff", "gg", "kk"}
    assert set(bound_names(function, has_walrus=False)) == set(bound_names(function)) == bound


@pytest.mark.parametrize("package", PACKAGES)
def test_on_some_real_sources(package):
    for text in sources(package, every=20):
        tree = ast.parse(text)
        assert {id(node) for node in all_nodes(tree)} == everything(tree)
        if ":=" not in text:
            functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
            assert all(set(bound_names(node, False)) == set(bound_names(node)) for node in functions)


def test_a_name_bound_by_a_walrus_never_means_the_outer_one():
    program = read_program("x = 1\ndef f():\n    print(x)\n    if (x := g()):\n        pass\n", "f.py")
    [call] = [call for call in program.calls if call.name == "builtins.print"]
    assert not isinstance(call.args[0], Const)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_generator_is_one_whatever_ends_its_lines(end):
    text = "def f():\n    return 1\n\ndef g():\n    yield 1\n    return 2\n\nprint(f(), g())\n"
    program = read_program(text.replace("\n", end), "f.py")
    [call] = [call for call in program.calls if call.name == "builtins.print"]
    assert [isinstance(value, Const) for value in call.args] == [True, False]


def test_the_innermost_node_is_the_smallest_that_another_one_stands_in():
    tree = ast.parse("f(g(x, *h(a)(b)), k=m(n)[p(q)])\nwith r(\n    s(t)) as u: v = w(\n        y)\nz\n")
    # As a run has them: an assignment, which may be as large as the call in it, comes behind all calls.
    outer = [node for kind in (ast.Call, ast.Assign) for node in ast.walk(tree) if isinstance(node, kind)]
    nesting = Nesting(outer)
    placed = [node for node in all_nodes(tree) if hasattr(node, "lineno")]
    for node in placed:
        around = [other for other in outer if is_inside(node, other)]
        assert nesting.innermost(node) is min(around, key=extent, default=None)
