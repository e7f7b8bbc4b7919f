"""Something of the user's that holds more tensors with every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.filesize import decimal

from ..cause import Cause, Found

if TYPE_CHECKING:
    from ..evidence import Evidence


class GrowingHolder(Cause):
    """A list, dict or attribute that holds at least half of what was added since the first steps."""

    name = "growing-holder"

    def find(self, evidence: Evidence) -> Found | None:
        """Take the largest holder, where something grew."""
        growth = evidence.growth
        largest = max(evidence.census.holdings, key=lambda held: held.nbytes, default=None)
        if largest is None or not evidence.is_large(growth) or largest.nbytes < growth / 2:
            return None
        return Found(
            self.name,
            f"`{largest.name}` holds {largest.count:,} tensors of {decimal(largest.nbytes)} on the device, and "
            f"{decimal(growth)} more are alive before this step than after the first",
            "keep numbers or copies on the CPU: `.item()`, `.detach().cpu()`",
            largest.nbytes,
            largest.place,
        )
