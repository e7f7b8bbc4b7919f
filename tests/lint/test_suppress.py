import textwrap

import pytest
from hf_ckpt.lint.finding import Finding, Severity, Span
from hf_ckpt.lint.sources.edits import apply_edits
from hf_ckpt.lint.suppressions.comments import comment_row, read_suppressions, suppress, unused

RULES = frozenset({"CKPT101", "some-name", "CKPT102", "other-name"})


def finding(line, end_line=None, code="CKPT101", name="some-name"):
    return Finding(code, name, Severity.ERROR, "m", "x.py", Span(line, 1, end_line or line, 9))


def left(text, *findings):
    found = findings or tuple(finding(number) for number in range(1, text.count("\n") + 2))
    return [item.span.line for item in suppress(found, read_suppressions(text))[0]]


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa",
        "# NOQA",
        "#noqa:CKPT101",
        "# noqa: CKPT101",
        "# noqa: E501, CKPT101",
        "# noqa: E501 CKPT101",
        "# type: ignore # noqa: CKPT101",
        "# noqa: CKPT101 we know",
        "# ckpt-lint: ignore",
        "# ckpt-lint: ignore[CKPT101]",
        "# ckpt-lint:ignore[ckpt101]",
        "# ckpt-lint: ignore[some-name] the reason",
        "# ckpt-lint: ignore[CKPT102, CKPT101]",
        "# ckpt-lint: ignore[]  # ckpt-lint: ignore[CKPT101]",
    ],
)
def test_a_comment_at_the_end_of_the_line_silences_it(comment):
    assert left(f"f(x)  {comment}") == []


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa: CKPT102",
        "# noqa: E501",
        "# noqa: because",
        "# noqa:",
        "# noqa: CKPT1",
        "# ckpt-lint: ignore[]",
        "# ckpt-lint: ignore[CKPT102]",
        "# ckpt-lint: ignored",
        "# see ckpt-lint",
    ],
)
def test_a_comment_that_means_something_else_does_not(comment):
    assert left(f"f(x)  {comment}") == [1]


def test_a_comment_in_a_string_is_no_comment():
    assert left('f("# noqa")') == [1]
    assert left('f("""\n# noqa\n""")', finding(2)) == [2]


CALL = """\
y = checkpoint({0}
    block,{1}
    x,{2}
){3}
z = 1
"""


@pytest.mark.parametrize("place", range(4))
def test_any_line_of_a_finding_that_spans_lines_will_do(place):
    comments = ["  # noqa: CKPT101" if place == index else "" for index in range(4)]
    assert left(CALL.format(*comments), finding(1, 4)) == []


def test_a_statement_shared_by_two_findings_keeps_them_apart():
    text = "pairs = [\n    f(1),  # noqa: CKPT101\n    f(2),\n]\n"
    assert left(text, finding(2), finding(3)) == [3]
    assert left("pairs = [\n    f(1),\n    f(2),\n]  # noqa\n", finding(2), finding(3)) == []


def test_a_comment_deep_in_a_class_does_not_silence_the_whole_class():
    text = "class A:\n    x = 1\n    y = 2  # noqa: CKPT101\n"
    assert left(text, finding(1, 3)) == [1]


def test_an_own_line_comment_covers_the_next_statement():
    text = "# ckpt-lint: ignore[CKPT101]\n\n# why\ny = f(\n    x,\n)\nz = f(y)\n"
    assert left(text, finding(4), finding(5), finding(7)) == [7]


def test_an_own_line_comment_covers_decorators_and_the_header_they_belong_to():
    text = "# ckpt-lint: ignore\n@first\n@second\ndef f(\n    x,\n):\n    return g(x)\n"
    assert left(text, finding(2), finding(4), finding(5), finding(7)) == [7]


def test_an_own_line_comment_inside_brackets_covers_the_next_line():
    text = "pairs = [\n    # ckpt-lint: ignore[CKPT101]\n    f(1),\n    f(2),\n]\n"
    assert left(text, finding(3), finding(4)) == [4]


def test_an_own_line_noqa_covers_nothing_else():
    assert left("# noqa\nf(x)\n", finding(2)) == [2]


def test_a_whole_file():
    assert left("f(1)\nf(2)\n# ckpt-lint: ignore-file\n") == []
    text = "f(1)\n# ckpt-lint: ignore-file[CKPT101]\n"
    assert left(text, finding(1), finding(1, code="CKPT102", name="other-name")) == [1]


def test_text_that_cannot_be_tokenized_suppresses_nothing():
    assert left("f(  # noqa\n", finding(1)) == [1]


def idle(text, *findings):
    suppressions = read_suppressions(text)
    _, used = suppress(findings, suppressions)
    return list(unused("x.py", suppressions, used, RULES, text))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f(x)  # noqa: CKPT101\n", "f(x)\n"),
        ("f(x)  # noqa: CKPT101, E501\n", "f(x)  # noqa: E501\n"),
        ("f(x)  # ckpt-lint: ignore[CKPT101, CKPT102]\n", "f(x)\n"),
        ("    # ckpt-lint: ignore[some-name]\nf(x)\n", "f(x)\n"),
        ("f(x)  # noqa: CKPT101 but why\n", "f(x)  # but why\n"),
        ("f(x)  # noqa: CKPT101  # pragma: no cover\n", "f(x)  # pragma: no cover\n"),
        ("f(x)  # type: ignore # noqa: CKPT101\n", "f(x)  # type: ignore\n"),
    ],
)
def test_unused_entries_are_reported_and_removed(before, after):
    [found] = idle(before)
    assert found.code == "CKPT901"
    assert apply_edits(before, found.fix.edits) == after


def test_used_foreign_and_bare_entries_are_left_alone():
    assert idle("f(x)  # noqa: CKPT101, E501\n", finding(1)) == []
    assert idle("f(x)  # noqa\n") == []
    assert idle("f(x)  # noqa: CKPT999\n") == []  # not one of ours, or not selected


def test_a_comment_row_is_a_line_that_can_take_a_comment():
    text = textwrap.dedent(
        '''\
        a = f("""
        long
        """, 1)
        b = 1 + \\
            2
        c = 3
        '''
    )
    assert [comment_row(text, line) for line in (1, 2, 3, 4, 5, 6)] == [3, 3, 3, 5, 5, 6]
