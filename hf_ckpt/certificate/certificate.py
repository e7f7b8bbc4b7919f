"""The outcome of a certified step as data, and in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from ..pages import explained_at

if TYPE_CHECKING:
    from ..measuring.report import Report
    from .culprit import Culprit
    from .outcome import Difference


class Verdict(StrEnum):
    """What a certificate says."""

    EQUAL = "bitwise equal"
    DIFFERENT = "different"
    UNPROVEN = "not proven"


@dataclass(frozen=True, slots=True)
class Certificate:
    """Whether a step is the one without checkpointing, to the last bit.

    Attributes:
        verdict: The outcome.
        compared: How many gradients were compared.
        same_loss: Whether the loss is equal.
        differences: Parameters whose gradients differ.
        culprit: Where the step first went another way; None where it did not, or where that is not known.
        reason: Why nothing is proven, a clause.
        report: What the policy did in the compared run; None without a policy.
    """

    verdict: Verdict
    compared: int = 0
    same_loss: bool = True
    differences: tuple[Difference, ...] = ()
    culprit: Culprit | None = None
    reason: str = ""
    report: Report | None = field(default=None, repr=False, compare=False)

    @property
    def holds(self) -> bool:
        """Whether loss, gradients and buffers are bitwise those without checkpointing."""
        return self.verdict is Verdict.EQUAL

    def __str__(self) -> str:
        if self.holds:
            return f"{self.verdict}: the loss and {self.compared} gradients"
        if self.verdict is Verdict.UNPROVEN:
            return f"{self.verdict}: {self.reason}"
        told = [self._differs()]
        told += [] if self.culprit is None else [in_words(self.culprit)]
        return "\n".join(told + self._worst())

    def _differs(self) -> str:
        loss = "equal" if self.same_loss else "different"
        if not self.differences:
            return f"{self.verdict}: {self.compared} gradients are equal (loss {loss}), what the step leaves is not"
        return f"{self.verdict}: {len(self.differences)} of {self.compared} gradients differ (loss {loss})"

    def _worst(self) -> list[str]:
        worst = sorted(self.differences, key=lambda difference: -difference.error)[:5]
        return [f"  {difference.parameter}: relative error {difference.error:.2e}" for difference in worst]


def in_words(culprit: Culprit) -> str:
    """Where and why, on one line."""
    at = "" if culprit.place is None else f"{culprit.place}: "
    code = "" if culprit.rule is None else f"{culprit.rule.code} "
    op = f" at {culprit.op}" if culprit.op else ""
    where = f"first in `{culprit.layer}`{op}" if culprit.layer else f"first{op}" if op else "somewhere"
    page = "" if culprit.rule is None else f" ({explained_at(culprit.rule.code, culprit.rule.name)})"
    return f"{at}{code}{where}: {culprit.cause}{page}"
