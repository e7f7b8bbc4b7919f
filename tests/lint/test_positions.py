"""The positions that are found for one statement at a time are those that libcst finds for the whole module."""

import ast
from importlib.util import find_spec
from pathlib import Path

import libcst as cst
import pytest
from hf_ckpt.lint.fix.positions import Positions
from libcst.metadata import MetadataWrapper, PositionProvider

LAYOUTS = '''# a comment


import a; import b

@first  # of two
# between
@second(
    1,
)

# behind them
def f(x):
    """Two
    lines."""
    return x
    # the last of the block

  # indented less
# of the next statement
@ \\
 third
class C: pass
if x: y; z
else:
    pass
async def g(): ...
'''


@pytest.mark.parametrize("end", ["", "\n", "\n\n# the end"], ids=repr)
@pytest.mark.parametrize("text", [LAYOUTS, "x = 1", "\n\nx = [\n1]; y = 2", "@(\n  a\n)\ndef f(): pass", ""])
def test_in_every_layout(text, end):
    assert_same(text.rstrip("\n") + end)


@pytest.mark.parametrize("package", ["peft", "trl"])
def test_in_real_sources(package):
    spec = find_spec(package)
    if spec is None:
        pytest.skip(f"needs {package}")
    [folder] = spec.submodule_search_locations
    paths = sorted(path for path in Path(folder).rglob("*.py") if path.stat().st_size < 10_000)
    for path in paths[::6]:
        assert_same(path.read_text())


def assert_same(text):
    """Every node of every statement, asked for from the last to the first."""
    module = cst.parse_module(text)
    whole = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
    positions = Positions(module, text)
    for statement in reversed(ast.parse(text).body):
        assert positions.starting_at(statement.lineno, statement.col_offset)
    inside = {node for statement in module.body for node in below(statement)}
    assert set(positions.known()) == inside & set(whole)
    assert {node: positions.of(node) for node in positions.known()} == {node: whole[node] for node in positions.known()}


def below(node):
    yield node
    for child in node.children:
        yield from below(child)
