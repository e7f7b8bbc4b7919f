"""Layers on a simulated card: traced with CUDA's ops, without a synchronisation, with torch's number of launches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow

POLICIES = ("none", "full", "attention", "mlp", "dots_saveable", "budget=0.5")


@pytest.mark.parametrize("card", ["h100", "a100", "t4"])
def test_steady_state_never_waits_and_allocates_nothing(card: str, simulate: Callable[..., Any]) -> None:
    found = simulate(card, "steady", "whole", *POLICIES, "full/torch")
    for policy in POLICIES:
        assert set(found[policy]["modes"]) <= {"", "keep", "traced symbolic"}, policy
        assert found[policy]["synchronisations"] == 0, policy
        assert found[policy]["device_allocations"] == 0, policy
    assert found["full"]["launches"] <= found["full/torch"]["launches"]
    assert found["full"]["peak"] <= 1.01 * found["full/torch"]["peak"]
    assert found["budget=0.5"]["launches"] < found["full"]["launches"]


@pytest.mark.parametrize("stands", ["four bits", "sharded"])
def test_budgets_never_wait_where_weights_are_packed_or_gathered(stands: str, simulate: Callable[..., Any]) -> None:
    for policy, found in simulate("rtx4090", "steady", stands, "full", "budget=0.5").items():
        assert set(found["modes"]) <= {"keep", "traced symbolic"}, policy
        assert found["synchronisations"] == 0, policy
        assert found["device_allocations"] == 0, policy


@pytest.mark.parametrize(
    ("card", "dtype"), [("a100", "bfloat16"), ("a100", "float32"), ("h100", "bfloat16"), ("t4", "float16")]
)
def test_padded_batches_share_a_trace_by_the_alignment_of_their_masks(
    card: str, dtype: str, simulate: Callable[..., Any]
) -> None:
    found = simulate(card, "padded", dtype)
    assert found["modes"] == ["traced symbolic"]
    assert found["per shape"] == 0
    assert found["symbolic"] <= 2


@pytest.mark.parametrize("card", ["h100", "rtx4090", "t4"])
def test_masks_of_all_lengths_share_a_trace_or_two(card: str, simulate: Callable[..., Any]) -> None:
    """Attention pads a mask where its rows are not aligned, so those have a trace of their own."""
    lengths = [128, 200, 131, 256, 77, 264, 1001, 512, 100, 96]
    for kind, found in simulate(card, "masks", json.dumps(lengths), "llama", "qwen2", "mistral").items():
        assert found["modes"] == ["traced symbolic"], kind
        assert found["traces"] <= 2, kind
