import ast
import json

import pytest
from hf_ckpt.lint.finding import Applicability, Edit, Finding, Fix, Note, Severity, Span
from hf_ckpt.lint.sources.error import SourceError
from hf_ckpt.lint.sources.notebook import edit_notebook, parse_notebook, to_cell, unparsable_cells


def notebook(*cells, indent=1, language="python", as_list=True):
    def cell(text):
        kind, _, body = text.partition(":") if text.startswith("markdown:") else ("code", "", text)
        source = body.splitlines(keepends=True) if as_list else body
        return {"cell_type": kind, "metadata": {}, "source": source}

    document = {
        "cells": [cell(text) for text in cells],
        "metadata": {"language_info": {"name": language}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return (json.dumps(document, indent=indent) + "\n").encode()


def test_cells_are_joined_line_for_line():
    parsed = parse_notebook(notebook("import a\nb = 1", "markdown:# no code", "c = 2"))
    assert parsed.text == "import a\nb = 1\nc = 2\n"
    assert [(cell.number, cell.start) for cell in parsed.cells] == [(1, 0), (3, 2)]


@pytest.mark.parametrize(
    "text",
    [
        "%matplotlib inline\nx = 1",
        "!pip install \\\n  torch\nx = 1",
        "if True:\n    !ls\nx = 1",
        "files = !ls\nx = 1",
        "f = %timeit -o 1\nx = 1",
        "torch.nn?\nx = 1",
        "?torch\nx = 1",
        "%%time\nx = 1",
        "x = 5 % 3",
        "x = (5\n    % 3)",
    ],
)
def test_magics_leave_python_on_the_same_lines(text):
    parsed = parse_notebook(notebook(text))
    tree = ast.parse(parsed.text)
    [assignment] = [
        node for node in ast.walk(tree) if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "x"
    ]
    assert text.split("\n")[assignment.lineno - 1].startswith("x = ")
    assert parsed.text.count("\n") == text.count("\n") + 1
    assert not unparsable_cells(parsed)


def test_a_cell_of_another_language_is_not_python():
    parsed = parse_notebook(notebook("%%bash\nfor x in *; do", "y = 1"))
    assert parsed.text == "#\n#\ny = 1\n"
    assert not unparsable_cells(parsed)
    assert parse_notebook(notebook("x <- 1", language="R")).text == ""


def test_a_broken_cell_does_not_take_the_others_with_it():
    parsed = parse_notebook(notebook("def f(:", "y = 1"))
    assert parsed.text == "#\ny = 1\n"
    assert [cell.number for cell in unparsable_cells(parsed)] == [1]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"cells": 1}', b"\xff\xfe"])
def test_what_is_no_notebook_is_said_to_be_none(data):
    with pytest.raises(SourceError, match="not a notebook"):
        parse_notebook(data)


def finding(line, *edits, notes=()):
    fix = Fix(Applicability.SAFE, "m", edits) if edits else None
    return Finding("CKPT101", "n", Severity.ERROR, "m", "x.ipynb", Span(line, 1, line, 2), notes, fix)


def test_findings_are_counted_within_their_cell():
    parsed = parse_notebook(notebook("a = 1", "markdown:text", "b = 1\nc = 2"))
    here = finding(3, Edit(Span(3, 1, 3, 2), "d"), notes=(Note("x.ipynb", Span(1, 1, 1, 2), "set"),))
    moved = to_cell(parsed, here)
    assert (moved.cell, moved.span.line, moved.fix.edits[0].span.line) == (3, 2, 2)
    assert moved.notes[0].text == "set (cell 1)"
    across = finding(3, Edit(Span(3, 1, 3, 2), "d"), Edit(Span(1, 1, 1, 1), "import x\n"))
    assert to_cell(parsed, across).fix is None  # cannot be shown in one cell, but can be applied


@pytest.mark.parametrize("as_list", [True, False])
@pytest.mark.parametrize("indent", [1, 4, None, "\t"])
def test_edits_change_only_their_cells(as_list, indent):
    cells = ["!ls\na = 'ü'", "markdown:text", "b = 1\n%pip list\nc = 2"]
    data = notebook(*cells, indent=indent, as_list=as_list)
    parsed = parse_notebook(data)
    assert edit_notebook(parsed, []) == data
    edited = edit_notebook(parsed, [Edit(Span(5, 1, 5, 2), "d"), Edit(Span(2, 1, 2, 2), "import x\na")])
    expected = ["!ls\nimport x\na = 'ü'", "markdown:text", "b = 1\n%pip list\nd = 2"]
    assert edited == notebook(*expected, indent=indent, as_list=as_list)


def test_what_a_notebook_installs_is_kept_as_a_comment():
    text = "!pip install -q \\\n  transformers==4.31.0 \\\n  peft\nimport peft\n%timeit f()"
    assert parse_notebook(notebook(text)).text.splitlines() == [
        "pass  # !pip install -q transformers==4.31.0 peft",
        "#",
        "#",
        "import peft",
        "pass",
    ]
