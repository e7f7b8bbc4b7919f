"""Profiles of cards: complete, sourced, and possible."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hf_ckpt.devices.cards import CARDS, card_named
from hf_ckpt.devices.profile import differences
from hf_ckpt.errors import DeviceError


@pytest.mark.parametrize("name", CARDS)
def test_every_number_has_a_source_and_no_card_exceeds_its_data_sheet(name: str) -> None:
    card = CARDS[name]
    for what, figure in card.figures():
        assert figure.value > 0, what
        assert len(figure.source) > 10, what
    for dtype, peak in card.peak.items():
        assert card.matmul[dtype].value < peak.value
        assert card.attention[dtype].value < peak.value
    assert card.stream.value < card.bandwidth.value


@pytest.mark.parametrize("asked", ["h100", "H100-80GB", "RTX 4090", "4090", "A100-80", "a100 40gb", "l40s"])
def test_a_card_is_found_however_it_is_written(asked: str) -> None:
    assert card_named(asked).name in CARDS


def test_an_unknown_card_is_answered_with_a_near_one() -> None:
    with pytest.raises(DeviceError, match="did you mean h100"):
        card_named("h10")
    with pytest.raises(DeviceError, match="a100-40, a100, h100"):
        card_named("tpu")


def test_what_a_card_measures_otherwise_is_said() -> None:
    card = CARDS["a100"]
    rates = card.rates()
    assert list(differences(card, rates)) == []
    (line,) = differences(card, replace(rates, stream=rates.stream / 2))
    assert line.startswith("memory: measured")
    assert "-50%" in line
