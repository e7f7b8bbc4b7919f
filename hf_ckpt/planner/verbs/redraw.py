"""Redraw: random numbers are drawn again. The draws before it that share its random state come first (``Op.after``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ledger import Source
from ..verb import ReplayingVerb

if TYPE_CHECKING:
    from ...ledger import Buffer


class Redraw(ReplayingVerb):
    """The buffer is drawn again from the random state of the forward.

    Its draws are among the ops that :class:`~.rebuild.Rebuild` counts. A random state takes a few kilobytes of host
    memory, so it holds nothing on the device.
    """

    name = "redraw"

    def makes(self, buffer: Buffer) -> bool:
        """What random numbers went into."""
        return buffer.source is Source.RANDOM
