"""What two runs of a program say about its checkpointing. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

#: Relative difference from which two gradients differ: rounding of a replay stays below, every mistake above.
TOLERANCE = 1e-4


class Effect(StrEnum):
    """What goes wrong because of activation checkpointing, as far as a run shows it."""

    #: Another gradient, none where there should be one, other running statistics, or another generated text.
    WRONG = "wrong"
    #: The program raises, and does not without its checkpoints.
    RAISES = "raises"
    #: Checkpointing was asked for, and a backward pass recomputed nothing.
    NO_EFFECT = "no effect"


@dataclass(frozen=True, slots=True)
class Run:
    """One run: ``steps`` are digests of every gradient before every optimizer step.

    ``replays`` counts, for every backward pass, the modules that ran again in it; ``asked`` the calls that ask for
    checkpointing; ``line`` is where the program raised.
    """

    error: str = ""
    line: int = 0
    steps: tuple[tuple[tuple[float, ...] | None, ...], ...] = ()
    state: tuple[str, ...] = ()
    #: What the program let a model generate, as token ids.
    texts: tuple[list[int], ...] = ()
    asked: int = 0
    replays: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, record: dict[str, Any]) -> Run:
        """The run of a record that came as JSON."""
        steps = tuple(tuple(g if g is None else tuple(g) for g in step) for step in record.pop("steps", ()))
        record = {key: tuple(value) if isinstance(value, list) else value for key, value in record.items()}
        return cls(steps=steps, **record)


def effects_of(written: Run, plain: Run) -> frozenset[Effect] | None:
    """What checkpointing does to a program; None when its plain twin fails, so that nothing can be told."""
    if plain.error:
        return None
    if written.error:
        return frozenset({Effect.RAISES})
    found = set()
    if not _same_steps(written, plain) or (written.state, written.texts) != (plain.state, plain.texts):
        found.add(Effect.WRONG)
    if written.asked and not all(written.replays):
        found.add(Effect.NO_EFFECT)
    return frozenset(found)


def _same_steps(written: Run, plain: Run) -> bool:
    if len(written.steps) != len(plain.steps):
        return False
    pairs = zip(written.steps, plain.steps, strict=True)
    return all(len(a) == len(b) and all(map(_same, a, b)) for a, b in pairs)


def _same(ours: tuple[float, ...] | None, theirs: tuple[float, ...] | None) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    scale = max(*(abs(x) for x in theirs), 1e-6)
    return all(abs(a - b) <= TOLERANCE * scale for a, b in zip(ours, theirs, strict=True))
