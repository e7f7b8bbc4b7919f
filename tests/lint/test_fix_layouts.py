"""A fix means the same however the code is laid out: in a block, over several lines, with comments, tabs or CRLF.

Every example with a fix is laid out anew; the fixed text must have the same syntax tree as the fixed plain example, and
every comment it had. (The comment of an argument that is removed goes with it; such a fix is not safe.)
"""

import ast
import io
import textwrap
import tokenize

import pytest
from hf_ckpt.lint.apply import apply_edits
from hf_ckpt.lint.catalogue import all_rules
from hf_ckpt.lint.check import check_source
from hf_ckpt.lint.finding import Applicability

TRY = "try:\n{0}\nfinally:\n    pass\n"


def bad_examples():
    for rule in all_rules():
        section = rule.page.partition("## Bad\n")[2].partition("\n## ")[0]
        for index, block in enumerate(section.split("```python\n")[1:]):
            text = block.partition("```")[0]
            if any(finding.fix and finding.fix.edits for finding in check_source(text)):
                yield pytest.param(text, id=f"{rule.code}-{index}")


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


LAYOUTS = {
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
@pytest.mark.parametrize("plain", list(bad_examples()))
def test_a_fix_means_the_same_in_every_layout(plain, layout):
    plain = tidy(plain)
    text = LAYOUTS[layout](plain)
    expected = [finding.fix for finding in check_source(plain) if finding.fix]
    fixes = [finding.fix for finding in check_source(text) if finding.fix]
    if len(fixes) != len(expected):
        pytest.skip("the block changes what the rule can know, or the layout leaves no room for a fix")
    for fix, other in zip(fixes, expected, strict=True):
        fixed = apply_edits(text, fix.edits)
        assert dump(fixed) == dump(apply_edits(plain, other.edits), WRAPPED.get(layout, 0))
        if fix.applicability is Applicability.SAFE:
            assert fixed.count("# why") == text.count("# why")
