"""A sample of the faults that is the same every time, and under `make test-all` 200 that are drawn anew."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from .draw import injections
from .surroundings import own_caches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: So that workers share them.
PARTS, INJECTIONS = 5, 50


@pytest.fixture(autouse=True)
def caches() -> Iterator[None]:
    with own_caches():
        yield


def check(count: int, seed: int, tell: Callable[..., None], only: str = "") -> None:
    tried = list(injections(count, seed, only=only))
    tell("fault injections", len(tried), f"seed {seed}")
    wrong = [str(injection) for injection in tried if injection.problems]
    assert not wrong, "\n".join([f"python -m tests.faults --seed {seed} --injections {count}", *wrong])


def test_a_sample(tell: Callable[..., None]) -> None:
    check(4, 4, tell, only="loops.in_a")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_faults_drawn_anew(part: int, tell: Callable[..., None]) -> None:
    check(INJECTIONS, secrets.randbelow(1 << 31), tell)
