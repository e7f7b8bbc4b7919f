"""What batches take, by size: measured when one ran, or foreseen from the traces of those that ran.

The first forward leaves a trace in every engine, from which its own plan is made, and plans for batches of other sizes:
what those will save is arithmetic on the trace (see :mod:`.foresight`). The first forward under such a plan is compared
with what was foreseen, and teaches where it differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ...errors import BudgetError
from .foresight import Foresight, is_as_foreseen
from .made_plan import Measured, make_plan
from .own_inputs import own_inputs, with_own_inputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...engine import TracedReplay
    from ...ledger import LayerLedger
    from ..costs.problem import Problem
    from ..memory.room import Taken
    from .made_plan import Demands
    from .per_batch import BatchSize, MadePlan
    from .surroundings import Surroundings


@dataclass(frozen=True, slots=True)
class PendingMeasurement:
    """A forward that runs to be measured.

    ``size`` is that of the largest batch among the ranks, ``mine`` that of this rank's, ``own`` whether it is as large;
    ``taken`` is what was taken before the forward. ``foreseen`` is the size whose plan it runs under, where that plan
    was made from what was foreseen and no forward showed yet whether it is right.
    """

    size: BatchSize
    mine: BatchSize | None
    own: bool
    taken: Taken
    foreseen: BatchSize | None = None


class Learning:
    """What batches of each size take; the plan for each that is learnt goes into the book of ``demands``.

    ``engines`` are those of the layers in forward order. :meth:`known`, :meth:`expect` and :meth:`learn` are
    collectives, as those of :class:`Ranks` are.
    """

    def __init__(self, engines: Sequence[TracedReplay], surroundings: Surroundings, demands: Demands) -> None:
        self.engines = tuple(engines)
        self.surroundings = surroundings
        self.demands = demands
        self.book = demands.book
        self.ranks = surroundings.ranks
        #: What batches were measured, or are foreseen, to take, by size.
        self.measured: dict[BatchSize, Measured] = {}
        self.foresight = Foresight()
        #: For each layer the inputs that only it is given.
        self.own: tuple[frozenset[int], ...] = (frozenset(),) * len(self.engines)
        #: The storages, by key, of the tensors that each layer is given.
        self.given: tuple[tuple[int, ...], ...] = ()
        #: Those of ``measured`` that are foreseen, and that no forward has shown to be right.
        self.foreseen: set[BatchSize] = set()
        #: What the latest plan was made from.
        self.problem: Problem | None = None
        #: How many forwards ran to be measured.
        self.forwards = 0

    def known(self, target: BatchSize) -> BatchSize | None:
        """The size of the least batch into which ``target`` fits and of which is known what it takes."""
        fitting = [known for known in self.measured if target.fits_in(known)]
        nearest = min(fitting, key=lambda known: (known.bucket != target.bucket, known), default=None)
        if nearest is None or nearest.bucket != target.bucket:
            return self._foresee(target) or nearest
        return nearest

    def expect(self, size: BatchSize, mine: BatchSize | None, foreseen: BatchSize | None) -> PendingMeasurement | None:
        """The forward that begins is to be measured, if some rank's batch has this size."""
        own = mine is not None and mine.totals == size.totals
        if not self.ranks.any(own):
            return None
        if foreseen is None:
            self.forwards += 1
        return PendingMeasurement(size, mine, own, self.surroundings.taken(), foreseen)

    def learn(self, pending: PendingMeasurement) -> None:
        """Note what the forward took, and make the plan for its size; what was foreseen need only be right."""
        if pending.foreseen is not None:
            wrong = self.ranks.any(not self._was_foreseen(pending))
            self.foreseen.discard(pending.foreseen)
            if not wrong:
                return
            self._forget(pending.foreseen)
        if pending.mine is not None:
            self.foresight.note(pending.mine, [engine.sized_trace() for engine in self.engines])
        self.given = tuple(engine.given for engine in self.engines)
        self.own = own_inputs(self.given)
        made = self.ranks.decide(lambda: self._made(pending), prefer=pending.own)
        if made is not None:
            self._note(pending.size, *made)

    def start_over(self) -> None:
        """A layer does not do what its trace says: what batches were measured to take is not what they take."""
        self.measured.clear()
        self.book.plans.clear()
        self.foreseen.clear()
        self.foresight = Foresight()

    def _foresee(self, size: BatchSize) -> BatchSize | None:
        """Note what a batch of this size, or one a little longer, will take; returns the size that it is noted for."""
        longer, neighbours = size.with_margin, {known.bucket for known in self.measured}
        for wanted in (longer, size) if size.bucket == longer.bucket and size.bucket in neighbours else (size,):
            made = self.ranks.decide(partial(self._foreseen, wanted, self.surroundings.taken()))
            if made is not None:
                self._note(wanted, *made)
                self.foreseen.add(wanted)
                return wanted
        return None

    def _foreseen(self, size: BatchSize, taken: Taken) -> tuple[Measured, MadePlan] | None:
        ledgers = self.foresight.ledgers(size)
        if ledgers is None:
            return None
        try:
            return self._planned(size, taken, ledgers)
        except BudgetError:  # where nothing fits, the batch itself must show it
            return None

    def _was_foreseen(self, pending: PendingMeasurement) -> bool:
        if pending.mine is None:
            return True
        foreseen = self.foresight.ledgers(pending.mine) or (None,) * len(self.engines)
        return all(map(is_as_foreseen, foreseen, self._ledgers()))

    def _forget(self, wrong: BatchSize) -> None:
        """A forecast was wrong, so those not yet shown to be right are as good as it."""
        for size in (wrong, *self.foreseen):
            self.measured.pop(size, None)
            self.book.plans.pop(size, None)
        self.foreseen.clear()

    def _note(self, size: BatchSize, measured: Measured, plan: MadePlan) -> None:
        self.problem = measured.problem
        self.measured = {known: m for known, m in self.measured.items() if not _replaces(size, known)}
        self.measured[size] = measured
        self.book.add(size, plan)

    def _ledgers(self) -> tuple[LayerLedger | None, ...]:
        return tuple(engine.ledger() for engine in self.engines)

    def _made(self, pending: PendingMeasurement) -> tuple[Measured, MadePlan] | None:
        ledgers = self._ledgers()
        if all(ledger is None for ledger in ledgers):
            return None
        return self._planned(pending.size, pending.taken, ledgers)

    def _planned(
        self, size: BatchSize, taken: Taken, ledgers: tuple[LayerLedger | None, ...]
    ) -> tuple[Measured, MadePlan]:
        """What a batch of this size takes, and its plan."""
        counted = with_own_inputs(ledgers, self.own)
        measured = Measured(ledgers, self.surroundings.problem(counted, size, self.given, taken), taken)
        return measured, make_plan(measured, self.demands.of(size))


def _replaces(size: BatchSize, known: BatchSize) -> bool:
    """Whether what a batch of ``size`` takes says all about one of ``known``, as in :meth:`PlanBook.add`."""
    return known.bucket == size.bucket and known.fits_in(size)
