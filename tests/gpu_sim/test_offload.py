"""Offload on a simulated card: ordered by events, within the budget, with host memory that does not grow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow
GIB = 1 << 30


@pytest.fixture(scope="module")
def found(simulate: Callable[..., Any]) -> Any:
    return simulate("a100", "offload", "budget=20GiB", "budget=20GiB+offload")


def test_no_memory_is_used_before_a_copy_that_needs_it_has_ended(found: Any) -> None:
    assert found["budget=20GiB+offload"]["offloaded"] > GIB
    assert found["budget=20GiB+offload"]["order_errors"] == []


def test_offload_keeps_to_the_budget_in_what_the_card_gives(found: Any) -> None:
    for policy in found:
        assert found[policy]["reserved"] <= 20 * GIB, policy


def test_host_memory_is_bounded_and_nothing_waits(found: Any) -> None:
    with_offload = found["budget=20GiB+offload"]
    assert with_offload["pinned"] <= 2 * with_offload["offloaded"], "torch rounds pinned blocks up to powers of two"
    assert with_offload["host_allocations"] == 0
    assert with_offload["synchronisations"] == with_offload["device_allocations"] == 0
