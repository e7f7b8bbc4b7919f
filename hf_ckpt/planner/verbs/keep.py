"""Keep: the buffer stays on the device, for its bytes and no time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...assignment import KEEP
from ..verb import StoringVerb

if TYPE_CHECKING:
    from ...ledger import Buffer


class Keep(StoringVerb):
    """The buffer is there when backward asks for it."""

    name = KEEP

    def held_bytes(self, buffer: Buffer) -> int:
        """All of its bytes."""
        return buffer.nbytes
