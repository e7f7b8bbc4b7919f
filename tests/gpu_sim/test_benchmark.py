"""The benchmarks on a simulated card: each of them, and each part of the one for real cards, comes to an answer.

Their times and values say nothing here, so neither do the goals that they miss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.benchmarks import gpu

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("part", [part for part in gpu.PARTS if part != "flash_attention"])
def test_a_part_answers(part: str, simulate: Callable[..., Any]) -> None:
    found = simulate("h100", "benchmark", "gpu", "--rounds", "1", "--only", part)
    assert found["exit"] == 0
    assert "skipped" not in found["result"][part]


def test_packed_sequences_through_flash_attn_share_traces(simulate: Callable[..., Any]) -> None:
    found = simulate("h100", "benchmark", "gpu", "--only", "flash_attention")["result"]["flash_attention"]
    assert found["full"]["modes"] == found["budget=0.5"]["modes"] == ["traced symbolic"]
    assert found["budget=0.5"]["held_bytes"] <= 0.5 * found["none"]["held_bytes"]


@pytest.mark.parametrize(("part", "package"), [("flash_attention", "flash-attn"), ("qlora", "bitsandbytes")])
def test_a_part_says_which_package_is_missing(part: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: None)
    assert gpu.PARTS[part](1) == {"skipped": f"{package} is not installed"}


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_frontier_counts_what_the_allocator_gave(dtype: str, simulate: Callable[..., Any]) -> None:
    rows = simulate("h100", "benchmark", "frontier", "--rounds", "1", "--dtype", dtype)["result"]["rows"]
    assert rows["ours: full"]["held"] == pytest.approx(rows["torch full"]["held"], rel=0.01)
    for share in (0.8, 0.5, 0.25):
        assert rows[f"ours: budget={share}"]["held"] <= share + 0.03


def test_the_cost_to_the_host_is_measured(simulate: Callable[..., Any]) -> None:
    found = simulate("h100", "benchmark", "host_cost", "--rounds", "1")
    assert "H100" in found["device"]
    assert set(found["result"]["ours_over"]) == {"torch full", "torch SAC"}


def test_skewed_lengths_are_planned_under_the_cap(simulate: Callable[..., Any]) -> None:
    found = simulate("h100", "benchmark", "length_skew", "--rounds", "1", "--batches", "4")["result"]
    assert all(found["ways"][way]["peak"] <= 0.21 for way in ("static", "per batch"))


@pytest.mark.parametrize("quantity", [[], ["--peak"]])
def test_memory_is_predicted(quantity: list[str], simulate: Callable[..., Any]) -> None:
    found = simulate("h100", "benchmark", "predict", "--only", "llama", *quantity)["result"]
    assert found["worst"] <= found["allowed"]
