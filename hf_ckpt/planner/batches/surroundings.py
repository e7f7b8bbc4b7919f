"""What a batch meets that runs: the device, the gradients that come, the loss head, other forwards, other ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..costs.assemble import assemble

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...head.managed import ManagedHead
    from ...ledger import LayerLedger
    from ..costs.problem import Problem
    from ..costs.roofline import Calibration
    from ..memory.room import Room, Taken
    from ..ranks import Ranks
    from .live_forwards import LiveForwards


@dataclass(frozen=True)
class Surroundings:
    """The same for batches of every size. With ``offload`` saved tensors may move to host memory."""

    rates: Calibration
    room: Room
    head: ManagedHead
    ranks: Ranks
    live: LiveForwards
    offload: bool = False

    def taken(self) -> Taken:
        """What is taken of the device now, the same on all ranks."""
        return self.room.look(self.ranks, empty=not self.live.waiting())

    def problem(self, ledgers: Sequence[LayerLedger | None], head_tokens: int) -> Problem:
        """What there is to decide for a batch whose layers save this, and whose head sees so many tokens."""
        grown = self.room.layer_gradients()
        return assemble(
            ledgers,
            self.rates,
            gradients=grown,
            heads=self.head.options(head_tokens),
            **self.room.other_gradients(grown),
            offload=self.offload,
        )
