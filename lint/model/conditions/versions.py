"""Library versions: which a project uses, and whether a claim holds for them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: What a project is taken to use when it does not say: the newest releases the rules know.
NEWEST: dict[str, str] = {
    "torch": ">=2.13",
    "transformers": ">=5.23,<6",
    "peft": ">=0.21",
    "accelerate": ">=1.13",
    "trl": ">=1.16",
    "ms-swift": ">=4.6",
}
_FIRST, _END = Version("0.dev0"), Version(f"{10**9}")


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


@cache
def overlap(left: str, right: str) -> bool:
    """Whether two version ranges (``>=5.0,<6``) share a version; holes made by ``!=`` are ignored."""
    low_l, high_l = bounds(left)
    low_r, high_r = bounds(right)
    return max(low_l, low_r) < min(high_l, high_r)


@cache
def bounds(spec: str) -> tuple[Version, Version]:
    """The lowest version of a range and the lowest above it."""
    low, high = _FIRST, _END
    for operator, version, wildcard in _clauses(spec):
        match operator:
            case ">=":
                low = max(low, version)
            case ">":
                low = max(low, _just_above(version))
            case "<":
                high = min(high, version)
            case "<=":
                high = min(high, _just_above(version))
            case "==" | "===":
                above = _next(version.release) if wildcard else _just_above(version)
                low, high = max(low, version), min(high, above)
            case "~=":
                above = _next(version.release[:-1]) if len(version.release) > 1 else _END
                low, high = max(low, version), min(high, above)
    return low, high


def _clauses(spec: str) -> Iterator[tuple[str, Version, bool]]:
    """The comparisons of a range: the operator, the public version, and whether a `.*` follows it.

    Versions are read by packaging. Its `SpecifierSet` would split the range too, but importing it loads the tags of
    every platform at each start of the tool: `python -X importtime -c "import packaging.specifiers"`.
    """
    for clause in spec.split(","):
        number = clause.strip().lstrip("<>=!~")
        operator = clause.strip().removesuffix(number)
        try:
            version = Version(number.removesuffix(".*"))
        except InvalidVersion:
            continue  # `*`, or what only `===` compares as text
        if operator:
            yield operator, Version(version.public), number.endswith(".*")


def _just_above(version: Version) -> Version:
    """A version above ``version`` and below every release that follows it."""
    return Version(f"{version.base_version}.0.0.0.1") if not version.is_prerelease else Version(version.base_version)


def _next(release: tuple[int, ...]) -> Version:
    """The first version that starts otherwise: 5.24 for 5.23."""
    return Version(".".join(map(str, (*release[:-1], release[-1] + 1))))
