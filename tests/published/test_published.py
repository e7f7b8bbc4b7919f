"""The published measurements: complete facts, and a few of them planned anew."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from hf_ckpt.devices.cards import card_named
from hf_ckpt.head.options import BYTES_PER_LOGIT

from .data import Pair, read_configs, read_sources
from .older_loss import bytes_per_logit
from .options import options_of
from .page import page
from .predict import NOT_EXPLAINED, Verdict, predict, write_configs
from .results import read_results, read_simulated

PAGE = Path(__file__).parents[2] / "hf_ckpt" / "PUBLISHED.md"
PAIRS = [pair for source in read_sources() for pair in source.pairs]
#: A row for every kind of fact: all on the card, what layers hold, added time.
SAMPLE = ("packed", "Qwen3-8B, 128k tokens", "13B, 2 x 4096, every second layer")


def test_there_are_enough_and_each_can_be_planned() -> None:
    assert len(PAIRS) >= 20
    configs = read_configs()
    for pair in PAIRS:
        assert pair.model in configs, pair.case
        assert pair.memory is not None or pair.added is not None, pair.case
        for options in filter(None, (pair.plan, pair.less)):
            words = shlex.split(options)
            card_named(words[words.index("--gpu") + 1])
            assert "--policy" in words


def test_what_ran_on_a_simulated_card_is_a_row() -> None:
    rows = {pair.key + name for pair in PAIRS for name in ("", " less")}
    assert set(read_simulated()) <= rows
    assert options_of(PAIRS[0].plan)["gpu"] == "a100"


def test_every_source_is_an_address_and_says_what_it_measured() -> None:
    for source in read_sources():
        assert source.url.startswith("https://"), source.name
        assert source.measured.endswith("."), source.name


def test_the_page_says_what_the_last_run_found_and_explains_every_miss() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert written == page(read_results())
    assert NOT_EXPLAINED not in written


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair.case in SAMPLE], ids=lambda pair: pair.case)
def test_a_sample_holds(pair: Pair, tmp_path: Path) -> None:
    write_configs(tmp_path, {pair.model: read_configs()[pair.model]})
    assert Verdict(pair, predict(pair, tmp_path)).holds


def test_the_older_loss_holds_more_than_todays() -> None:
    assert BYTES_PER_LOGIT < bytes_per_logit() <= 20
