"""Inputs of layers in host memory, on a simulated card: what is freed, what it costs, and the order of the streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow
LAYERS = 4
HELD, SENT = "full+head(16)", "full+head(16)+offload"


@pytest.fixture(scope="module")
def found(simulate: Callable[..., Any]) -> Any:
    return simulate("h100", "layer_inputs", str(LAYERS), HELD, SENT)


def test_the_card_has_the_latest_two_inputs_when_the_loss_is_there(found: Any) -> None:
    assert found[HELD]["at_loss"] - found[SENT]["at_loss"] == (LAYERS - 2) * found[SENT]["input"]
    assert found[HELD]["reported"] - found[SENT]["reported"] == LAYERS * found[SENT]["input"]
    assert found[SENT]["peak"] <= found[HELD]["peak"]


def test_inputs_travel_once_and_the_latest_two_do_not_come_back(found: Any) -> None:
    assert found[SENT]["to_host"] == LAYERS * found[SENT]["input"]
    assert found[SENT]["to_device"] == (LAYERS - 2) * found[SENT]["input"]


def test_copies_hide_behind_compute(found: Any) -> None:
    copies = (found[SENT]["to_host"] + found[SENT]["to_device"]) / found[SENT]["link"]
    assert found[SENT]["seconds"] - found[HELD]["seconds"] <= 0.05 * copies


def test_no_memory_is_used_before_a_copy_that_needs_it_has_ended(found: Any) -> None:
    assert found[SENT]["order_errors"] == []


def test_nothing_waits_and_nothing_is_allocated(found: Any) -> None:
    for count in ("synchronisations", "device_allocations", "host_allocations"):
        assert found[SENT][count] == 0, count
