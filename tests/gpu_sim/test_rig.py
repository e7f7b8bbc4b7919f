"""The simulated card does what a card does: its size, running out of memory, the order of streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hf_ckpt.devices.cards import CARDS

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow
GIB = 1 << 30


@pytest.mark.parametrize("name", ["a100", "t4"])
@pytest.mark.parametrize("allocator", ["", "expandable_segments:True"])
def test_card_gives_what_it_has_and_then_runs_out(name: str, allocator: str, simulate: Callable[..., Any]) -> None:
    card, found = CARDS[name], simulate(name, "allocator", allocator=allocator)
    assert tuple(found["capability"]) == card.capability
    assert card.title in found["name"]
    assert found["total"] == card.capacity.value
    assert found["blocks"] == found["free"] // GIB
    assert found["free_when_full"] < GIB
    assert found["free_again"] == found["free"]
    assert "CUDA out of memory. Tried to allocate 1024.00 MiB" in found["message"]


def test_use_of_memory_that_no_event_orders_is_an_error(simulate: Callable[..., Any]) -> None:
    found = simulate("h100", "streams")
    assert {name: len(errors) for name, errors in found.items()} == {
        "read before it is copied": 1,
        "read after it is copied": 0,
        "copied before it is made": 1,
        "used again under a copy": 1,
        "used again after record_stream": 0,
        "unpinned under a copy": 1,
        "unpinned after a copy": 0,
    }, found


def test_two_cards_without_a_launcher_are_refused(simulate: Callable[..., Any]) -> None:
    found = simulate("rtx3090", "two_gpus", count=2)
    assert found["gpus"] == 2
    assert "torchrun --nproc_per_node 2" in found["error"]


def test_measuring_a_card_gives_its_memory_back_and_a_full_one_is_no_error(simulate: Callable[..., Any]) -> None:
    found = simulate("rtx4090", "calibration")
    assert found["taken"] <= 640 << 20, found
    assert found["left"] <= 128 << 20, "cuBLAS keeps its workspace"
    assert found["stored"] == 1
    assert found["stored_full"] == 0
    assert found["stream"] > 0
    assert "left for a benchmark, so plans go by the rates of an ordinary device" in "".join(found["said"])
