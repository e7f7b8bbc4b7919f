"""How the judge of plans counts a budget that no plan keeps. Nothing here needs a card."""

from __future__ import annotations

import pytest

from .judge.table import is_told, misses

BUDGET, OVER = 89, 92


def cell(label: str, reserved: int, *, told: bool = False) -> dict[str, object]:
    figures = {"total": 100, "planned": 85, "spare": 4, "allocated": 85, "rows": 1, "out_of_memory": 0, "steps": 9}
    waits = {"synchronisations": 0, "device_allocations": 0}
    return {"label": label, "reserved": reserved, "told": told, **figures, **waits}


@pytest.mark.parametrize(
    ("told", "reserved", "under_full", "wrong", "counts_as_told"),
    [
        (True, 91, OVER, [], True),
        (False, 91, OVER, ["over the budget"], False),
        (True, 91, BUDGET, ["over the budget"], False),  # `full` shows that a plan takes less
        (True, 93, OVER, ["+4.5% from planned"], True),
        (False, BUDGET, OVER, [], False),
    ],
)
def test_a_budget_that_full_exceeds_too_is_told_or_missed(told, reserved, under_full, wrong, counts_as_told):
    judged = cell("0.9 of the card", reserved, told=told)
    group = {"0.9 of the card": judged, "full": cell("full", under_full)}
    assert misses(judged, group) == wrong
    assert is_told(judged, group) is counts_as_told
