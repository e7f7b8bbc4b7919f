"""One locator for programs, notebooks and configurations: every way to ask for a place gives the same one."""

from __future__ import annotations

import ast

import pytest
from hf_ckpt.lint.sources.locator import Locator
from hypothesis import given
from hypothesis import strategies as st

_TEXTS = st.text(st.sampled_from("ab \t\n\rß層😀"), max_size=30)


@given(_TEXTS, st.data())
def test_a_range_of_characters_is_found_again(text, data):
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, len(text)))
    locator = Locator(text)
    assert locator.offsets(locator.span(begin, end)) == (begin, end)
    assert locator.position(begin)[0] == locator.line(begin)


@given(_TEXTS, st.data())
def test_the_line_around_a_character_is_its_line(text, data):
    offset = data.draw(st.integers(0, len(text)))
    locator = Locator(text)
    begin, end = locator.around(offset)
    assert begin <= offset
    assert text[begin:end] == locator.lines[locator.line(offset) - 1]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_python_counts_bytes_and_findings_count_characters(newline):
    text = f"é = 1{newline}層, name = 'ß😀', called(é)"
    locator = Locator(text)
    call = next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    begin = locator.offset(*locator.of_bytes(call.lineno, call.col_offset))
    end = locator.offset(*locator.of_bytes(call.end_lineno, call.end_col_offset))
    assert text[begin:end] == "called(é)"


def test_a_place_behind_the_end_is_the_end():
    assert Locator("one\ntwo").offset(3, 1) == 7
    assert Locator("one\ntwo").offset(2, 99) == 7
