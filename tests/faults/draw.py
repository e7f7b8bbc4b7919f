"""Draws injections: which fault, where, in what; all from one seed."""

from __future__ import annotations

import random
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import files, loops, signals, trainers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .outcome import Outcome

#: What is drawn from, and how often.
SCENARIOS: dict[Callable[[random.Random], Outcome], int] = {
    loops.at_an_op: 8,
    loops.at_a_call: 6,
    loops.in_a_hook: 4,
    loops.in_a_weight_hook: 1,
    loops.in_a_layers_forward: 2,
    loops.not_a_number: 2,
    loops.calibrating: 1,
    trainers.in_the_trainers_ops: 3,
    trainers.in_a_function_of_the_user: 6,
    trainers.under_a_jumping_clock: 2,
    signals.interrupted: 2,
    files.while_writing: 6,
    files.a_corrupt_calibration: 3,
    files.a_corrupt_cache_of_the_linter: 3,
    files.a_corrupt_baseline: 2,
    files.standard_output_is_full: 1,
}


@dataclass(frozen=True, slots=True)
class Injection:
    """One draw: its number says everything about it, given the seed."""

    number: int
    scenario: str
    what: str
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """One line, and one for each problem."""
        return "\n    ".join([f"{self.number} {self.scenario}: {self.what}", *self.problems])


def injections(count: int, seed: int, *, start: int = 0, only: str = "") -> Iterator[Injection]:
    """So many injections that met their fault, of the scenarios with ``only`` in their names."""
    done, number = 0, start
    while done < count:
        injection = _injection(number, seed, only)
        number += 1
        if injection is not None:
            done += 1
            yield injection


def _injection(number: int, seed: int, only: str) -> Injection | None:
    """Number ``number`` of this seed; None when the run never came to the fault."""
    rng = random.Random(f"{seed}/{number}")
    drawn = {scenario: share for scenario, share in SCENARIOS.items() if only in _name(scenario)}
    scenario = rng.choices(list(drawn), list(drawn.values()))[0]
    try:
        outcome = scenario(rng)
    except Exception:
        return Injection(number, _name(scenario), "the judge itself failed", [traceback.format_exc()])
    return Injection(number, _name(scenario), outcome.what, outcome.problems) if outcome.met else None


def _name(scenario: Callable[..., Outcome]) -> str:
    return f"{scenario.__module__.rpartition('.')[2]}.{scenario.__name__}"
