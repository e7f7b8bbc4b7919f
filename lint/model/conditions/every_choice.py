"""What is checkpointed is one of several modules: whether something holds whichever of them it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.objects.containers import held_by
from ...facts.values import conditional_options
from ..events import Checkpoint, CheckpointSequential

if TYPE_CHECKING:
    from collections.abc import Collection

    from ...facts.values import Guard
    from ..events import Checkpointing


def holds_in_every_choice(event: Checkpointing, found: Collection[tuple[Guard, ...]]) -> bool:
    """Whether one of several modules is checkpointed, and the conditions ``found`` are those of each of them."""
    match event:
        case Checkpoint():
            entered = event.function
        case CheckpointSequential():
            entered = event.functions
        case _:
            return False
    ways = (conditional_options(part) for part in (entered, *held_by(entered)))
    # A choice by what is not followed has no conditions, so nothing tells what belongs to which option.
    return any(len(chosen) > 1 and all(under and under in found for _, under in chosen) for chosen in ways)
