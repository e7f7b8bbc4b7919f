"""What is known when memory runs out: plain data that causes are judged from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING

from .census.census import Kind

if TYPE_CHECKING:
    from ..planner.batches.per_batch import BatchSize
    from .census.census import Census
    from .history import Step
    from .place import Place
    from .usage import Usage


class Phase(StrEnum):
    """What ran when memory ran out."""

    FORWARD = "forward"
    BACKWARD = "loss or backward"
    OPTIMIZER = "optimizer's step"
    EVALUATION = "evaluation"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One out-of-memory error.

    Attributes:
        phase: What ran.
        asked: Bytes that were asked for; None where the error does not say.
        usage: What the device was used for.
        start: The same when training began.
        census: Who held it.
        fitted: The steps that fitted, the latest ones.
        most: The largest batch of all steps that fitted, by measure (``rows``, ``length``, ``tokens``).
        first: The first step of the run, which makes the optimizer's state.
        step: The step that did not fit; None before the first.
        waiting: How many forwards of it wait for a backward, the one that runs among them.
        trained: Numbers of the model that are trained now, and when training began.
        place: The innermost line of the user's code that ran; None where none did.
        card: The device, where it is not the one whose memory was watched; "" where it is.
    """

    phase: Phase
    asked: int | None
    usage: Usage
    start: Usage
    census: Census
    fitted: tuple[Step, ...]
    most: dict[str, int]
    first: int
    step: Step | None
    waiting: int
    trained: tuple[int, int]
    place: Place | None
    card: str = ""

    def on_another_card(self, card: str) -> Evidence:
        """The same where a card of several ran out on which no step was watched: what it held before is not known."""
        fitted = tuple(replace(step, live=None, peak=None) for step in self.fitted)
        step = None if self.step is None else replace(self.step, live=None, peak=None)
        return replace(self, start=self.usage, fitted=fitted, step=step, card=card)

    @property
    def size(self) -> BatchSize | None:
        """The batch of the forward that ran last."""
        return self.step.sizes[-1] if self.step is not None and self.step.sizes else None

    @property
    def room(self) -> int | None:
        """Bytes for what a step takes beside what was alive before it; None where nobody counts."""
        if self.usage.total is None or self.step is None or self.step.live is None:
            return None
        return self.usage.total - self.usage.others - self.step.live

    @property
    def activations(self) -> int:
        """Bytes that are there because of the batch."""
        bytes_of = self.census.bytes_of
        return sum(bytes_of.get(kind, 0) for kind in (Kind.KEPT, Kind.BOUNDARIES, Kind.LOGITS, Kind.PASSING))

    def is_large(self, nbytes: int) -> bool:
        """Whether it is worth a word: a fiftieth of what is used, and without it what was asked for would be there."""
        missing = (self.asked or 0) - (self.usage.free or 0)
        return nbytes > 0 and nbytes >= max(missing, self.usage.live // 50)

    @property
    def growth(self) -> int:
        """Bytes that are alive before this step and were not before the second one, by when all state is there.

        0 where nobody counts.
        """
        lives = [step.live for step in self.fitted if step.live is not None and step.number > self.first]
        if self.step is None or self.step.live is None or not lives:
            return 0
        return self.step.live - int(median(lives[:3]))
