"""What ckpt-lint says about packages that train models is what was reviewed."""

import re

import pytest
from collect import DownloadError, Entry, default_cache, differences, key, precision
from users import README, archives, collect_users, fetch, read_reviewed, with_table

REVIEWED = read_reviewed()
#: So that workers share the packages.
PARTS = 10


def test_enough_packages_are_pinned_with_their_hashes():
    pinned = archives()
    assert len({archive.pin.partition("==")[0] for archive in pinned}) == len(pinned) >= 60
    for archive in pinned:
        assert re.fullmatch(r"[\w.-]+==[\w.]+", archive.pin)
        assert archive.kind in ("sdist", "wheel")
        assert re.fullmatch(r"[0-9a-f]{64}", archive.sha256)


def test_reviewed_findings_are_sorted_and_have_a_verdict_and_a_reason():
    assert [key(entry) for entry in REVIEWED] == sorted({key(entry) for entry in REVIEWED})
    pins = {archive.pin for archive in archives()}
    for entry in REVIEWED:
        assert entry.keys() == Entry.__annotations__.keys()
        assert entry["package"] in pins
        assert isinstance(entry["verdict"], bool)
        assert entry["why"]


def test_reviewed_precision_with_and_without_the_commonest_rule():
    for entries in (REVIEWED, [entry for entry in REVIEWED if entry["code"] != "CKPT101"]):
        true, reviewed = precision(entries)
        assert true / reviewed >= 0.95


def test_the_table_says_what_was_reviewed():
    text = README.read_text()
    assert with_table(text, REVIEWED) == text


@pytest.mark.slow(minutes=4)
@pytest.mark.parametrize("part", range(PARTS))
def test_findings_are_those_that_were_reviewed(part):
    chosen, missing = [], []
    for archive in archives()[part::PARTS]:
        try:
            fetch(archive, default_cache())
            chosen.append(archive)
        except DownloadError as error:
            missing.append(str(error))
    pins = {archive.pin for archive in chosen}
    entries, failures = collect_users(default_cache(), chosen)
    assert failures == []
    assert differences(entries, [entry for entry in REVIEWED if entry["package"] in pins]) == []
    if missing:
        pytest.skip(f"the others are as reviewed, but {'; '.join(missing)}")
