"""Graphs of earlier steps that nobody let go of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.filesize import decimal

from ..cause import Cause, Found
from ..census.census import Kind

if TYPE_CHECKING:
    from ..evidence import Evidence


class GraphAlive(Cause):
    """Losses added up as tensors, outputs kept with their history, a retained graph."""

    name = "graph-alive"

    def find(self, evidence: Evidence) -> Found | None:
        """Read it from the census: what such graphs hold was counted node by node."""
        census = evidence.census
        nbytes = census.bytes_of.get(Kind.OTHER_GRAPHS, 0)
        if not evidence.is_large(nbytes):
            return None
        holder = max(census.holdings, key=lambda held: held.graph_bytes, default=None)
        holder = holder if holder is not None and holder.graph_bytes >= nbytes / 2 else None
        by = "" if holder is None else f", because of `{holder.name}`"
        return Found(
            self.name,
            f"the graphs of {census.earlier:,} forwards of earlier steps are alive and hold {decimal(nbytes)}{by}",
            "add up `loss.detach()` or `loss.item()`, run what needs no gradients under `torch.no_grad()`, and pass no "
            "`retain_graph=True`",
            nbytes,
            None if holder is None else holder.place,
        )
