"""Weights of another model that came during training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.filesize import decimal

from ..cause import Cause, Found
from ..census.census import Kind

if TYPE_CHECKING:
    from ..evidence import Evidence


class OtherModel(Cause):
    """A copy for averaging or merging, a judge that an evaluation loads."""

    name = "other-model"

    def find(self, evidence: Evidence) -> Found | None:
        """Name it where such weights are at least half of what was added since the first steps."""
        growth = evidence.growth
        nbytes = evidence.census.bytes_of.get(Kind.OTHER_MODELS, 0)
        if not evidence.is_large(growth) or nbytes < growth / 2:
            return None
        return Found(
            self.name,
            f"parameters that are not the trained model's take {decimal(nbytes)}, and {decimal(growth)} more are alive "
            "before this step than after the first",
            "load the other model on the CPU, or delete it when it is not needed",
            nbytes,
        )
