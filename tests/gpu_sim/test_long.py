"""Long sequences of an 8B on a simulated H100: what fits, what copies cost, the peak inside a layer (LONG.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from .chunked_gradients import differences
from .long import EIGHT, in_pieces
from .long_page import HIDDEN, LESS, OFF, PIECES, hidden

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST = 500_000


@pytest.mark.slow
@pytest.mark.parametrize("policy", [f"full+head(64)+{EIGHT}+offload", f"budget=auto+{EIGHT}+offload"])
def test_half_a_million_tokens_fit_and_copies_hide_behind_compute(policy: str, simulate: Callable[..., Any]) -> None:
    row = simulate("h100", "long_sequences", "lora", policy, str(LONGEST))
    assert (row.get("failed"), row["out_of_memory"]) == (None, 0)
    assert row["reserved"] <= row["total"]
    assert row["copies"] > 0
    assert hidden(row) >= HIDDEN
    assert row["synchronisations"] == 0
    if row["planned"] is not None:
        assert row["allocated"] == pytest.approx(row["planned"], rel=0.03)


@pytest.mark.slow
def test_the_peak_inside_a_layer(simulate: Callable[..., Any]) -> None:
    whole, pieces = in_pieces(1)["all"], in_pieces(PIECES)["all"]
    found = simulate("h100", "inside_layer", "131072", whole, pieces)
    assert found[pieces] <= (1 - LESS) * found[whole]


def test_gradients_in_pieces_are_those_of_the_whole_up_to_rounding() -> None:
    found = differences(list(in_pieces(PIECES).values()))
    assert max(found.values()) <= OFF
    assert found != dict.fromkeys(found, 0.0)
