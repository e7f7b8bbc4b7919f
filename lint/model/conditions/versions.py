"""Library versions: which a project uses, and whether a claim holds for them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Release: TypeAlias = tuple[int, ...]

#: What a project is taken to use when it does not say: the newest releases the rules know.
NEWEST: dict[str, str] = {
    "torch": ">=2.13",
    "transformers": ">=5.23,<6",
    "peft": ">=0.21",
    "accelerate": ">=1.13",
    "trl": ">=1.16",
}
_CLAUSE = re.compile(r"(>=|<=|==|~=|!=|<|>)\s*([0-9]+(?:\.[0-9]+)*)(\.\*)?")
_END: Release = (10**9,)


class Versions:
    """The ranges a project allows; a library it does not mention is the newest."""

    __slots__ = ("ranges", "stated")

    def __init__(self, ranges: Mapping[str, str]) -> None:
        #: What the project says itself.
        self.stated = ranges
        self.ranges = {**NEWEST, **ranges}

    def admit(self, claim: Mapping[str, str]) -> bool:
        """Whether some version the project allows is one ``claim`` holds for."""
        return all(overlap(self.ranges.get(library, ""), spec) for library, spec in claim.items())

    def may_be(self, library: str, spec: str) -> bool:
        """Whether the project allows a version in ``spec``."""
        return self.admit({library: spec})

    @property
    def hf_default_reentrant(self) -> bool | None:
        """The variant transformers runs when nothing is said, reentrant up to 5.0; None when both are admitted."""
        if not self.may_be("transformers", "<5.0"):
            return False
        return True if self.require("transformers", "<5.0") else None

    def require(self, library: str, spec: str) -> bool:
        """Whether the project says itself that it uses only versions in ``spec``."""
        if library not in self.stated:
            return False
        low, high = bounds(self.stated[library])
        least, most = bounds(spec)
        return least <= low and high <= most


def overlap(left: str, right: str) -> bool:
    """Whether two version ranges (``>=5.0,<6``) share a version; holes made by ``!=`` are ignored."""
    low_l, high_l = bounds(left)
    low_r, high_r = bounds(right)
    return max(low_l, low_r) < min(high_l, high_r)


def _release(number: str) -> Release:
    return tuple(int(part) for part in number.split("."))


def bounds(spec: str) -> tuple[Release, Release]:
    """The lowest version of a range and the lowest above it."""
    low: Release = ()
    high: Release = _END
    for operator, number, wildcard in _CLAUSE.findall(spec):
        release = _release(number)
        match operator:
            case ">=":
                low = max(low, release)
            case ">":
                low = max(low, (*release, 0, 0, 1))
            case "<":
                high = min(high, release)
            case "<=":
                high = min(high, (*release, 0, 0, 1))
            case "==":
                above = _after(release, -1) if wildcard else (*release, 0, 0, 1)
                low, high = max(low, release), min(high, above)
            case "~=":
                low, high = max(low, release), min(high, _after(release, -2) if len(release) > 1 else _END)
    return low, high


def _after(release: Release, position: int) -> Release:
    kept = release[: len(release) + position + 1]
    return (*kept[:-1], kept[-1] + 1)
