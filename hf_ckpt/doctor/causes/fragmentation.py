"""Free memory in pieces that are too small."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.filesize import decimal

from ..cause import Cause, Found

if TYPE_CHECKING:
    from ..evidence import Evidence


class Fragmentation(Cause):
    """The allocator holds more unused bytes than were asked for."""

    name = "fragmentation"

    def find(self, evidence: Evidence) -> Found | None:
        """Compare what is unused with what was asked for."""
        unused = evidence.usage.unused
        if evidence.asked is None or unused < evidence.asked or not unused:
            return None
        return Found(
            self.name,
            f"the allocator holds {decimal(unused)} that no tensor uses, in pieces smaller than the "
            f"{decimal(evidence.asked)} that were asked for",
            "set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` in the environment",
            unused,
        )
