"""The outcome of every policy at every size of batch that `hf-ckpt plan` forecasts: plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ...errors import BudgetError, CkptError
from ...measuring.forecast import forecast, moments, step_seconds
from ...measuring.on_cards import card_moments
from ...planner.costs.parts import MomentParts, Part
from ...planner.costs.timeline import Moment, Phase, worst
from ...policy import parse_policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...planner.costs.assess import Assessment
    from ...planner.costs.problem import Problem
    from ...planner.solver.solve import Solution
    from ...policy import Policy
    from ..study import Study


@dataclass(frozen=True, slots=True)
class Row:
    """One policy at one size of batch. Sizes are bytes, times seconds; all None when ``error`` says why.

    Attributes:
        policy: The policy as written.
        batch: Sequences in a batch.
        length: Tokens in each.
        held_bytes: What the layers hold between forward and backward.
        share_of_none: That over what they hold without checkpointing.
        peak_bytes: Activations, loss head and the gradients that come up at the peak of a step, beside the rest.
        peak_at: The moment of the peak: ``loss``, ``backward 31``, ``optimizer``, ...
        total_bytes: The peak with weights, optimizer, what is gathered, and gradients that stand all along.
        added_seconds: What recomputing adds to a step.
        step_seconds: A step without checkpointing, by the same rates; None where a layer cannot be traced.
        fits: Whether the memory has room for ``total_bytes`` and, on a card, for what its allocator takes besides; None
            when no memory is known.
        tight: Whether the memory has room for ``total_bytes`` alone: the allocator may take more than is left.
        error: Why there is no forecast; None when there is one.
    """

    policy: str
    batch: int
    length: int
    held_bytes: int | None = None
    share_of_none: float | None = None
    peak_bytes: int | None = None
    peak_at: str | None = None
    total_bytes: int | None = None
    added_seconds: float | None = None
    step_seconds: float | None = None
    fits: bool | None = None
    tight: bool = False
    error: str | None = None

    @property
    def added_share(self) -> float | None:
        """The added time over the step's; None where either is not known."""
        if self.added_seconds is None or not self.step_seconds:
            return None
        return self.added_seconds / self.step_seconds

    def as_json(self) -> dict[str, Any]:
        """All fields, with the added time as a share of a step."""
        return asdict(self) | {"added_share": self.added_share}


def rows_of(study: Study, policies: Iterable[Policy]) -> list[Row]:
    """Forecast every policy at the study's size of batch; a refusal becomes a row with its error."""
    none = forecast(study.inputs, study.resolve(parse_policy("none")))
    return [_row(study, policy, none) for policy in policies]


def _row(study: Study, policy: Policy, none: Assessment) -> Row:
    subject = study.subject
    try:
        problem, solution = study.solve(policy)
    except BudgetError as error:
        return Row(str(policy), subject.batch, subject.length, fits=False, error=str(error))
    except CkptError as error:
        return Row(str(policy), subject.batch, subject.length, error=str(error))
    found = solution.predicted
    peaks = _peaks(study, problem, solution)
    fullest = max(peaks, key=lambda peak: peak.total)
    alive_fits = None if study.total is None else fullest.total <= study.total
    fits = alive_fits and all(study.leaves_room(peak.total, peak.beside) for peak in peaks)
    return Row(
        str(policy),
        subject.batch,
        subject.length,
        held_bytes=found.held,
        share_of_none=found.held / none.held if none.held else None,
        peak_bytes=fullest.moment.nbytes,
        peak_at=f"{fullest.moment}{fullest.card}",
        total_bytes=fullest.total,
        added_seconds=found.seconds,
        step_seconds=step_seconds(study.inputs),
        fits=fits,
        tight=bool(alive_fits) and not fits,
    )


@dataclass(frozen=True, slots=True)
class _Peak:
    """A card's worst moment, beside the bytes that it holds all along; ``card`` is empty where there is one alone."""

    card: str
    moment: Moment
    beside: int

    @property
    def total(self) -> int:
        """All bytes alive then."""
        return self.moment.nbytes + self.beside


def _peaks(study: Study, problem: Problem, solution: Solution) -> list[_Peak]:
    if not study.cards:
        peak = worst((*moments(problem, solution), optimizer_step(study)))
        return [_Peak("", peak, study.inputs.memory.used + study.inputs.to_come)]
    found = []
    for number, card in enumerate(study.cards):
        peak = worst(card_moments(problem, solution, card, grows=study.inputs.growing is not None))
        found.append(_Peak(f", card {number}", peak, card.standing))
    return found


def optimizer_step(study: Study) -> Moment:
    """The optimizer's step: what it takes beside its state, and gradients where they do not stand all along."""
    return optimizer_parts(study).moment


def optimizer_parts(study: Study) -> MomentParts:
    """The same, taken apart."""
    growing = study.inputs.growing
    gradients = 0 if growing is None else growing.at_step
    moment = Moment(Phase.OPTIMIZER, None, gradients + study.step_copies)
    return MomentParts(moment, {Part.GRADIENTS: gradients, Part.STEP: study.step_copies})


def fastest(rows: Sequence[Row]) -> Row | None:
    """The row that fits and adds the least time, the one with the smallest peak among equals; None when none fits."""
    fitting = [row for row in rows if row.error is None and row.fits is not False]
    return min(fitting, key=lambda row: (row.added_seconds, row.peak_bytes), default=None)


def exit_code(rows: Sequence[Row]) -> int:
    """0 when something fits, 1 when nothing does, 2 when every policy was refused."""
    if fastest(rows) is not None:
        return 0
    return 1 if any(row.fits is False for row in rows) else 2
