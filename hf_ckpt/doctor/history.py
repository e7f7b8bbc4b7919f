"""What the steps of a run were like, the latest ones kept: plain data."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..planner.batches.per_batch import BatchSize

#: Steps that are kept one by one; of older ones only the largest batch is known.
KEPT = 256


@dataclass(slots=True)
class Step:
    """One optimizer step.

    Attributes:
        number: The step, from 1.
        live: Bytes of live tensors before its first forward; None where nobody counts.
        sizes: The batch of each forward in training, None for one that no tensor of two dimensions came with.
        first_forward: The number of its first forward in the run.
        most_waiting: The most forwards of it that waited for a backward at once.
        peak: The most bytes alive until its end, in the run so far; None where nobody counts.
    """

    number: int
    live: int | None = None
    sizes: list[BatchSize | None] = field(default_factory=list)
    first_forward: int = 0
    most_waiting: int = 0
    peak: int | None = None

    @property
    def largest(self) -> BatchSize | None:
        """The batch of its forwards that saves most."""
        return max((size for size in self.sizes if size is not None), key=lambda size: size.load, default=None)


class History:
    """The steps that came to their end, and the one that runs."""

    def __init__(self) -> None:
        self.fitted: deque[Step] = deque(maxlen=KEPT)
        self.current: Step | None = None
        #: The first step of the run, which makes the optimizer's state.
        self.first = 0
        #: The largest batch in each way of being large, over all steps that fitted.
        self.most: dict[str, int] = {}

    def begin(self, step: Step) -> None:
        """A step begins; the one before it came to its end."""
        self.end()
        self.current = step
        self.first = self.first or step.number

    def end(self) -> None:
        """The step that ran came to its end."""
        step, self.current = self.current, None
        if step is None:
            return
        self.fitted.append(step)
        for size in step.sizes:
            for name, value in {} if size is None else size.measures.items():
                self.most[name] = max(self.most.get(name, 0), value)

    @property
    def passing(self) -> int:
        """The most bytes that a step after the first took beside what was alive before it; 0 where nobody counts."""
        steps = (step for step in self.fitted if step.number > self.first)
        return max((step.peak - step.live for step in steps if step.peak and step.live), default=0)

    @property
    def lives(self) -> list[tuple[int, int]]:
        """(step, live bytes before its first forward) of the steps that fitted and the one that runs."""
        steps = [*self.fitted, *([self.current] if self.current is not None else [])]
        return [(step.number, step.live) for step in steps if step.live is not None]
