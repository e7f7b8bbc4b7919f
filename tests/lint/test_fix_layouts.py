"""A fix means the same however the code is laid out: in a block, over several lines, with comments, tabs or CRLF.

Every example with a fix is laid out anew; the fixed text must have the same syntax tree as the fixed plain example, and
every comment it had. (The comment of an argument that is removed goes with it; such a fix is not safe.)
"""

import ast
import codecs
import io
import textwrap
import tokenize
from functools import cache

import libcst as cst
import pytest
from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.analysis.job import Job
from hf_ckpt.lint.catalogue.rules import all_rules
from hf_ckpt.lint.finding import Applicability
from hf_ckpt.lint.fix.files import rewrite_bytes
from hf_ckpt.lint.fix.transforms import fixing
from hf_ckpt.lint.project.settings import Settings
from hf_ckpt.lint.sources.edits import apply_edits

TRY = "try:\n{0}\nfinally:\n    pass\n"


@cache
def fixes_of(text):
    return [finding.fix for finding in check_source(text) if finding.fix]


def bad_examples():
    for rule in all_rules():
        if "\n## Fix safety\n" not in rule.page:
            continue  # nothing of it is fixed
        section = rule.page.partition("## Bad\n")[2].partition("\n## ")[0]
        for index, block in enumerate(section.split("```python\n")[1:]):
            text = block.partition("```")[0]
            if any(fix.edits for fix in fixes_of(text)):
                yield pytest.param(text, id=f"{rule.code}-{index}")


BAD_EXAMPLES = list(bad_examples())


def spread(text, comment=""):
    """``text`` with a new line, and a comment, after every opening bracket and comma inside brackets."""
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    depth, at, pieces = 0, 0, []
    in_string = 0
    for token in tokens:
        name = tokenize.tok_name[token.type]
        in_string += (name == "FSTRING_START") - (name == "FSTRING_END")
        if token.type != tokenize.OP or in_string:
            continue
        depth += (token.string in "([{") - (token.string in ")]}")
        end = starts[token.end[0] - 1] + token.end[1]
        if depth and token.string in "([{,":
            pieces += [text[at:end], f"{comment}\n        "]
            at = end
    return "".join([*pieces, text[at:]])


def tidy(text):
    """``text`` without the comments that lines end with, which announce findings."""
    return "\n".join(line.partition("  # error")[0] for line in text.splitlines()) + "\n"


def is_same(text, other):
    try:
        return ast.dump(ast.parse(text)) == ast.dump(ast.parse(other))
    except SyntaxError:
        return False


def with_commas(text):
    """``text`` with a comma before every closing bracket where that means the same."""
    for at in sorted((at for at, letter in enumerate(text) if letter in ")]}"), reverse=True):
        changed = f"{text[:at]}, {text[at:]}"
        if is_same(text, changed):
            text = changed
    return text


def with_semicolons(text):
    """``text`` with every simple statement behind another one on its line."""
    lines = text.splitlines(keepends=True)
    simple = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assign | ast.Expr | ast.Return)]
    docs = {node.body[0] for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Module) and node.body}
    for node in sorted(simple, key=lambda node: node.lineno, reverse=True):
        line = lines[node.lineno - 1]
        if not line[: node.col_offset].strip() and node not in docs:
            lines[node.lineno - 1] = f"{line[: node.col_offset]}0; {line[node.col_offset :]}"
    return "".join(lines)


LAYOUTS = {
    "trailing commas": with_commas,
    "in a block": lambda text: TRY.format(textwrap.indent(text, "    ")),
    "in two blocks, by tabs": lambda text: TRY.format(
        textwrap.indent(TRY.format(textwrap.indent(text, "    ")), "    ")
    ).replace("    ", "\t"),
    "spread": spread,
    "spread, with comments": lambda text: spread(text, "  # why"),
    "spread, in a block": lambda text: TRY.format(textwrap.indent(spread(text), "    ")),
    "spread, in a block, CRLF": lambda text: TRY.format(textwrap.indent(spread(text), "    ")).replace("\n", "\r\n"),
}
#: What a layout does to the fixed plain text; only blocks add to the tree.
WRAPPED = {
    "in a block": 1,
    "in two blocks, by tabs": 2,
    "spread, in a block": 1,
    "spread, in a block, CRLF": 1,
}


def dump(text, blocks=0):
    for _ in range(blocks):
        text = TRY.format(textwrap.indent(text, "    "))
    return ast.dump(ast.parse(text.replace("\r\n", "\n")))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("plain", BAD_EXAMPLES)
def test_a_fix_means_the_same_in_every_layout(plain, layout):
    plain = tidy(plain)
    text = LAYOUTS[layout](plain)
    expected, fixes = fixes_of(plain), fixes_of(text)
    if len(fixes) != len(expected):
        pytest.skip("the block changes what the rule can know, or the layout leaves no room for a fix")
    for fix, other in zip(fixes, expected, strict=True):
        fixed = apply_edits(text, fix.edits)
        assert dump(fixed) == dump(apply_edits(plain, other.edits), WRAPPED.get(layout, 0))
        if fix.applicability is Applicability.SAFE:
            assert fixed.count("# why") == text.count("# why")


@pytest.mark.parametrize("plain", BAD_EXAMPLES)
@pytest.mark.parametrize("layout", [lambda text: text, spread, with_commas, with_semicolons], ids=lambda f: f.__name__)
@pytest.mark.parametrize(("mark", "newline"), [(b"", b"\n"), (codecs.BOM_UTF8, b"\r\n")], ids=["plain", "BOM, CRLF"])
def test_all_fixes_converge_in_a_file(plain, layout, mark, newline):
    data = mark + layout(plain).encode().replace(b"\n", newline)
    settings = Settings(select=("ALL",))
    fixed = rewrite_bytes(Job("example.py", settings), data, fixing(unsafe=True))
    assert fixed.result.failure is None
    assert fixed.after.startswith(mark)
    assert not fixed.after[len(mark) :].startswith(codecs.BOM_UTF8)
    assert fixed.after.count(b"\n") == fixed.after.count(newline)
    ast.parse(fixed.after)
    assert rewrite_bytes(Job("example.py", settings), fixed.after, fixing(unsafe=True)).after == fixed.after


def calls_beside_a_dict():
    """Every call in every example with a fix, with a `**` of unknown content added to it."""
    for example in BAD_EXAMPLES:
        (text,) = example.values
        for index, node in enumerate(ast.walk(ast.parse(text))):
            if isinstance(node, ast.Call) and (node.keywords or node.args):
                tree = ast.parse(text)
                call = list(ast.walk(tree))[index]
                call.keywords.append(ast.keyword(None, ast.Name("unknown_options")))
                yield pytest.param(ast.unparse(tree), id=f"{example.id}-{index}")


def keywords(text):
    """The keywords of every call with a `**` of unknown content."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            names = [word.arg for word in node.keywords if word.arg]
            assert len(names) == len(set(names))
            if any(isinstance(word.value, ast.Name) and word.value.id == "unknown_options" for word in node.keywords):
                yield set(names)


@pytest.mark.parametrize("text", list(calls_beside_a_dict()))
def test_no_keyword_is_added_beside_options_that_may_hold_it(text):
    fixed = rewrite_bytes(
        Job("example.py", Settings(select=("ALL",))), text.encode(), fixing(unsafe=True)
    ).after.decode()
    for before, after in zip(keywords(text), keywords(fixed), strict=True):
        assert after <= before


@pytest.mark.parametrize("plain", BAD_EXAMPLES)
def test_lone_carriage_returns_stay_the_line_ends(plain):
    settings = Settings(select=("ALL",))
    expected, fixed = (
        rewrite_bytes(Job("example.py", settings), plain.encode().replace(b"\n", newline), fixing(unsafe=True))
        for newline in (b"\n", b"\r")
    )
    assert fixed.result == expected.result
    assert fixed.after == expected.after.replace(b"\n", b"\r")


@pytest.mark.parametrize("plain", BAD_EXAMPLES)
def test_what_libcst_cannot_read_is_reported_without_fixes(plain):
    page_break = "\ndef more():\n    if True:\n\f        pass\n"
    with pytest.raises(cst.ParserSyntaxError):
        cst.parse_module(plain + page_break)
    found = check_source(plain + page_break)
    assert {finding.fix for finding in found} == {None}
    expected = check_source(plain + page_break.replace("\f", ""))
    assert [(item.code, item.span[:2], len(item.notes)) for item in found] == [
        (item.code, item.span[:2], len(item.notes)) for item in expected
    ]
