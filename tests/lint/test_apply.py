"""Fixes to text and to files: all of a fix or nothing, and the file as it was when anything goes wrong."""

import os
import stat

import pytest
from hf_ckpt.lint.finding import Applicability, Edit, Finding, Fix, Severity, Span
from hf_ckpt.lint.fix.apply import MAX_ROUNDS, compatible, fix_source
from hf_ckpt.lint.fix.files import replace_file, unified_diff
from hf_ckpt.lint.sources.edits import apply_edits
from hf_ckpt.lint.sources.lines import line_starts, split_lines
from hf_ckpt.lint.sources.source import Source, encode, read_source
from hypothesis import given
from hypothesis import strategies as st


def finding(*edits, applicability=Applicability.SAFE, code="CKPT101"):
    fix = Fix(applicability, "m", edits)
    return Finding(code, "name", Severity.ERROR, "m", "x.py", edits[0].span, fix=fix)


def edit(line, column, end_line, end_column, content=""):
    return Edit(Span(line, column, end_line, end_column), content)


def replace_word(old, new, applicability=Applicability.SAFE):
    """A toy rule: reports every ``old`` and offers ``new`` in its place."""

    def check(source):
        return [
            finding(edit(number, at + 1, number, at + 1 + len(old), new), applicability=applicability)
            for number, line in enumerate(split_lines(source.text), 1)
            if (at := line.find(old)) >= 0
        ]

    return check


def test_edits_insert_replace_and_delete():
    text = "a = 1\nb = 2\n"
    assert apply_edits(text, [edit(1, 1, 1, 2, "x"), edit(2, 6, 2, 6, "2"), edit(1, 6, 2, 1, "")]) == "x = 1b = 22\n"


def test_new_lines_are_those_of_the_file():
    assert apply_edits("a\r\nb\r\n", [edit(1, 1, 1, 1, "x\ny\n")]) == "x\r\ny\r\na\r\nb\r\n"


def test_lines_are_pythons_lines():
    text = "a = '\x0c\u2028'\rb\r\nc"
    assert line_starts(text) == [0, 9, 12]
    assert apply_edits(text, [edit(3, 1, 3, 2, "d")]) == "a = '\x0c\u2028'\rb\r\nd"


@given(st.text("ab\r\n\x0c\u2028ü", max_size=30))
def test_lines_and_their_starts_agree(text):
    starts = line_starts(text)
    assert len(starts) == len(split_lines(text))
    assert all(text[start:].startswith(line) for start, line in zip(starts, split_lines(text), strict=True))


def test_fixes_that_touch_each_other_wait():
    first = finding(edit(1, 1, 1, 5, "x"))
    inside = finding(edit(1, 3, 1, 4, "y"))
    same_place = finding(edit(1, 1, 1, 1, "z"))
    beside = finding(edit(1, 5, 1, 6, "w"))
    assert [item for item, _ in compatible([first, inside, same_place, beside], False)] == [first, beside]


def test_a_fix_whose_edits_overlap_is_not_applied():
    assert compatible([finding(edit(1, 1, 1, 5, "x"), edit(1, 3, 1, 9, "y"))], False) == []
    line_and_insertion = finding(edit(2, 1, 2, 1, "x\n"), edit(2, 1, 3, 1))
    assert len(compatible([line_and_insertion], False)) == 1


def test_fixes_that_share_an_edit_go_together():
    shared = edit(1, 1, 1, 1, "import functools\n")
    one, two = finding(shared, edit(2, 1, 2, 2, "x")), finding(shared, edit(3, 1, 3, 2, "y"))
    chosen = compatible([one, two], False)
    assert len(chosen) == 2
    text = apply_edits("\na\nb\n", [e for _, fix in chosen for e in fix.edits])
    assert text == "import functools\n\nx\ny\n"


@pytest.mark.parametrize(
    ("applicability", "unsafe", "expected"),
    [
        (Applicability.SAFE, False, "new = 1"),
        (Applicability.UNSAFE, False, "old = 1"),
        (Applicability.UNSAFE, True, "new = 1"),
        (Applicability.DISPLAY, True, "old = 1"),
    ],
)
def test_only_fixes_that_are_allowed_are_applied(applicability, unsafe, expected):
    result = fix_source(Source("x.py", "old = 1"), replace_word("old", "new", applicability), unsafe)
    assert result.source.text == expected


def test_fixing_goes_on_until_nothing_is_left():
    source = Source("x.py", "aaa = 1\naa = 2\n")
    result = fix_source(source, replace_word("aa", "a"), False)
    assert result.source.text == "a = 1\na = 2\n"
    assert result.applied["CKPT101"] == 3
    assert result.data == b"a = 1\na = 2\n"


def test_fixes_that_undo_each_other_leave_the_file_as_it_was():
    def check(source):
        old, new = ("a", "b") if source.text == "a" else ("b", "a")
        return replace_word(old, new)(source)

    result = fix_source(Source("x.py", "a"), check, False)
    assert result.data is None
    assert result.source.text == "a"
    assert f"{MAX_ROUNDS} rounds" in result.problem


def test_a_fix_that_breaks_the_syntax_leaves_the_file_as_it_was():
    result = fix_source(Source("x.py", "old = 1"), replace_word("old", "("), False)
    assert result.data is None
    assert "CKPT101 would not leave valid Python" in result.problem


def test_text_the_encoding_cannot_hold_leaves_the_file_as_it_was():
    source = read_source("x.py", b"# coding: latin-1\nold = '\xfc'\n")
    assert fix_source(source, replace_word("old", "ü"), False).data == b"# coding: latin-1\n\xfc = '\xfc'\n"
    result = fix_source(source, replace_word("old", "\u0416"), False)
    assert result.data is None
    assert "latin-1" in result.problem


@pytest.mark.parametrize("data", [b"\xef\xbb\xbfa = 1\r\n", b"a\n", b"", b"# -*- coding: cp1252 -*-\r\n\x80 = 1"])
def test_what_is_read_is_what_is_written(data):
    source = read_source("x.py", data)
    assert encode(source, source.text) == data


def test_replacing_keeps_permissions_and_links(tmp_path):
    target, link = tmp_path / "real.py", tmp_path / "link.py"
    target.write_bytes(b"old")
    target.chmod(0o754)
    link.symlink_to(target)
    replace_file(str(link), b"old", b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o754
    assert sorted(os.listdir(tmp_path)) == ["link.py", "real.py"]


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path):
    path = tmp_path / "a.py"
    path.write_bytes(b"theirs")
    with pytest.raises(OSError, match="changed"):
        replace_file(str(path), b"old", b"new")
    assert path.read_bytes() == b"theirs"


def test_a_write_that_fails_leaves_the_file_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "a.py"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        replace_file(str(path), b"old", b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.py"]


def test_a_diff_can_be_applied_by_patch():
    assert unified_diff("x.py", b"a\nb", b"a\nc") == (
        "--- x.py\n+++ x.py\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n"
    )
    assert unified_diff("x.py", b"a", b"a") == ""
