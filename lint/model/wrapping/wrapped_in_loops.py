"""The modules that a loop over the modules of a model wraps: `if isinstance(child, Block): setattr(...)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..frozen.module_loops import loop_over_modules
from ..frozen.named_modules import passing_in_loop

if TYPE_CHECKING:
    from ...facts.values import Value
    from ...facts.walk import Program
    from ..events.checkpoints import CheckpointWrap


def wrapped_in_loop(program: Program, wrap: CheckpointWrap) -> list[Value]:
    """What ``wrap`` certainly goes around, where a loop over the modules of an object gives it; nothing for others."""
    found = loop_over_modules(wrap.module)
    return [] if found is None or found.field else [*passing_in_loop(program, wrap.place, found)]
