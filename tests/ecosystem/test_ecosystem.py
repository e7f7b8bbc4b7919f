"""What ckpt-lint says about public packages is what the golden file has, and the golden file is reviewed."""

import re

import pytest
from collect import DownloadError, Entry, collect, default_cache, differences, key, pins, precision, read_golden

GOLDEN = read_golden()
#: So that workers share the packages.
PARTS = 4


def test_enough_packages_are_pinned():
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins())
    assert len({pin.partition("==")[0] for pin in pins()}) == len(pins()) >= 15


def test_golden_file_is_sorted_and_complete():
    assert [key(entry) for entry in GOLDEN] == sorted({key(entry) for entry in GOLDEN})
    for entry in GOLDEN:
        assert entry.keys() == Entry.__annotations__.keys()
        assert entry["package"] in pins()
        assert re.fullmatch(r"CKPT\d{3}", entry["code"])


def test_every_finding_has_a_verdict_and_a_reason():
    assert [entry for entry in GOLDEN if not isinstance(entry["verdict"], bool) or not entry["why"]] == []


def test_reviewed_precision():
    true, reviewed = precision(GOLDEN)
    assert reviewed == len(GOLDEN)
    assert true / reviewed >= 0.95


@pytest.mark.slow(minutes=3)
@pytest.mark.parametrize("part", range(PARTS))
def test_findings_are_those_that_were_reviewed(part):
    chosen = pins()[part::PARTS]
    try:
        corpus = collect(default_cache(), chosen)
    except DownloadError as error:
        pytest.skip(str(error))
    assert corpus.failures == []
    assert corpus.lines > 1_000_000 / PARTS
    assert differences(corpus.entries, [entry for entry in GOLDEN if entry["package"] in chosen]) == []
