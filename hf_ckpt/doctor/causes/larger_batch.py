"""A batch that is larger than any that fitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..cause import Cause, Found

if TYPE_CHECKING:
    from ..evidence import Evidence

#: What a batch's activations grow with, and what to call it.
_TOTALS = ("tokens", "target tokens", "media")


class LargerBatch(Cause):
    """More tokens, or larger media, than in every step before."""

    name = "larger-batch"

    def find(self, evidence: Evidence) -> Found | None:
        """Compare the batch that ran with the largest in each measure."""
        size = evidence.size
        if size is None or not evidence.fitted:
            return None
        now = size.measures
        larger = [name for name in _TOTALS if now.get(name, 0) > evidence.most.get(name, 0)]
        if not larger:
            return self._longer(now, evidence.most)
        total = larger[0]
        before = evidence.most.get(total, 0)
        return Found(
            self.name,
            f"this batch is larger than any that fitted: {_words(now, total)}; the most before were {before:,}",
            "",
            int(evidence.activations * (1 - before / now[total])),
        )

    def _longer(self, now: dict[str, int], most: dict[str, int]) -> Found | None:
        """Longer examples in no larger a batch: attention that keeps its scores grows with the square of the length.

        It is last among the causes, as nothing says how much of it is the length's.
        """
        length, before = now.get("length", 0), most.get("length", 0)
        if not before or length <= before:
            return None
        return Found(
            self.name,
            f"the examples of this batch are longer than any that fitted: {length:,} tokens; the most before were "
            f"{before:,}",
            "",
            0,
        )


def _words(measures: dict[str, int], total: str) -> str:
    prefix = total.removesuffix("tokens")
    rows, length = measures.get(f"{prefix}rows"), measures.get(f"{prefix}length")
    if total == "media" or rows is None or length is None:
        return f"{measures[total]:,} numbers of media"
    return f"{rows:,} x {length:,} = {measures[total]:,} {total}"
