"""Every file that the package writes, cut off in the middle: the old content stays, and nothing beside it."""

from __future__ import annotations

import pytest

from .files import WRITES, cut_off


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("number", range(len(WRITES)))
def test_a_write_that_is_cut_off(number: int, killed: bool) -> None:
    outcome = cut_off(WRITES[number], killed=killed, share=0.5)
    assert not outcome.problems, outcome
