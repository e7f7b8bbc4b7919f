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
    assert with_offload["pinned"] <= 1.1 * with_offload["offloaded"]
    assert with_offload["host_allocations"] == 0
    assert with_offload["synchronisations"] == with_offload["device_allocations"] == 0


@pytest.fixture(scope="module")
def hosted(simulate: Callable[..., Any]) -> Any:
    return simulate("a100", "host_memory")


def test_batches_of_several_lengths_share_pinned_memory(hosted: Any) -> None:
    most = max(step["moved"] for step in hosted["steps"])
    assert min(step["moved"] for step in hosted["steps"]) > GIB
    for step in hosted["steps"]:
        assert step["pinned"] <= 1.1 * most
        assert step["host_allocations"] == step["synchronisations"] == 0


def test_pinned_memory_that_is_no_longer_used_is_given_back(hosted: Any) -> None:
    assert hosted["short"][0]["pinned"] > GIB
    assert hosted["short"][-1] == {"moved": 0, "pinned": 0, "host_allocations": 0, "synchronisations": 0}
    assert sum(step["synchronisations"] for step in hosted["short"]) == 1, "the copies, before their memory goes"
    assert hosted["long_again"]["pinned"] <= 1.1 * hosted["long_again"]["moved"]
    assert hosted["restored"] == 0
    assert hosted["order_errors"] == []


def test_a_small_host_bounds_what_plans_move(hosted: Any) -> None:
    assert GIB < hosted["small_host"]["moved"] <= 0.8 * 4 * GIB
    assert hosted["small_host"]["pinned"] <= 0.8 * 4 * GIB


def test_a_refusal_of_the_driver_is_no_error_of_the_next_kernel_and_ctrl_c_leaves_nothing_pinned(
    simulate: Callable[..., Any],
) -> None:
    found = simulate("h100", "refused")
    assert found["pinned"] == [True, False]
    assert found["kernel after pin"] == found["kernel after unpin"] == "runs"
    assert found["left by Ctrl-C"] == 0
