"""The order in which the tests are dealt to workers."""

from __future__ import annotations

import pytest

from .conftest import dealt


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize(("slow", "quick"), [(0, 0), (0, 5), (3, 0), (2, 7), (7, 2), (5, 5)])
def test_each_share_is_dealt_its_slow_tests_first(slow, quick, workers):
    order = dealt([f"slow {n}" for n in range(slow)], [f"quick {n}" for n in range(quick)], workers)
    assert len(order) == len(set(order)) == slow + quick
    begin = 0
    for worker in range(workers):
        end = begin + (len(order) - begin) // (workers - worker)
        share = order[begin:end]
        assert share == sorted(share, key=lambda name: name.startswith("quick"))
        begin = end
