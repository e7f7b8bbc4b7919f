"""What the pages' examples show is found however they are spelled, but for what `RESULTS.md` lists."""

from __future__ import annotations

import pytest

from .judge import cases, listed

#: One in so many of the whole, where it has to be fast.
_SAMPLE = 12


def test_a_sample_is_found_in_every_spelling() -> None:
    assert {case.line for case in cases(part=(5, _SAMPLE)) if case.line} <= listed()


@pytest.mark.slow(minutes=5)
def test_all_are_found_in_every_spelling() -> None:
    assert {case.line for case in cases() if case.line} <= listed()
