"""Somebody else on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.filesize import decimal

from ..cause import Cause, Found

if TYPE_CHECKING:
    from ..evidence import Evidence


class OtherProcess(Cause):
    """What is used beside this process grew since training began, by at least what was asked for."""

    name = "other-process"

    def find(self, evidence: Evidence) -> Found | None:
        """Compare now with then."""
        grown = evidence.usage.others - evidence.start.others
        if evidence.asked is None or grown < evidence.asked or not evidence.is_large(grown):
            return None
        return Found(
            self.name,
            f"{decimal(evidence.usage.others)} of the device are not this process's tensors, {decimal(grown)} more "
            "than when training began",
            "end the other process (`nvidia-smi` lists them), or choose another device",
            grown,
        )
