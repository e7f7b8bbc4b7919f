"""What a batch meets that runs: the device, the gradients that come, the loss head, other forwards, other ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...chunks.measured import parts_in
from ..costs.assemble import assemble
from .beside_layers import BesideLayers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...chunks.measured import ChunkedParts
    from ...head.managed import ManagedHead
    from ...ledger import LayerLedger
    from ..costs.problem import Problem
    from ..costs.roofline import Calibration
    from ..memory.room import Room, Taken
    from ..ranks import Ranks
    from .live_forwards import LiveForwards
    from .per_batch import BatchSize


@dataclass(frozen=True)
class Surroundings:
    """The same for batches of every size. With ``offload`` saved tensors may move to host memory.

    ``chunked`` are the parts of layers that the policy puts in chunks.
    """

    rates: Calibration
    room: Room
    head: ManagedHead
    ranks: Ranks
    live: LiveForwards
    offload: bool = False
    chunked: Sequence[ChunkedParts] = ()
    beside: BesideLayers = field(default_factory=BesideLayers)

    def taken(self) -> Taken:
        """What is taken of the device now, the same on all ranks."""
        return self.room.look(self.ranks, empty=not self.live.waiting())

    def problem(
        self, ledgers: Sequence[LayerLedger | None], size: BatchSize, given: Sequence[Sequence[int]], taken: Taken
    ) -> Problem:
        """What there is to decide for a batch of this size, whose layers save this and are given these storages."""
        backward = self.room.in_backward(taken.whole)
        return assemble(
            ledgers,
            self.rates,
            gradients=backward.gradients.layers,
            heads=self.head.options(size.head_tokens),
            head_gradients=backward.gradients.head,
            late_gradients=backward.gradients.late,
            gathering=backward.gathering,
            freed=backward.freed,
            offload=self.offload,
            outside=self.beside.of(size),
            chunked=parts_in(self.chunked, self.room.layers),
            class_names=[type(layer).__name__ for layer in self.room.layers],
            given=given,
            waiting=backward.waiting,
        )
