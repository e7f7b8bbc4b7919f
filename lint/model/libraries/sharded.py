"""Which modules `fully_shard` makes units of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..frozen.module_loops import loop_over_modules
from ..frozen.named_modules import passing_in_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Value
    from ..events import Fsdp2Shard
    from ..run import Run


def sharded_modules(run: Run, shard: Fsdp2Shard) -> Iterator[Value]:
    """What it is called with, and in a loop over the modules of an object those that certainly come to it."""
    yield shard.module
    over_modules = loop_over_modules(shard.module)
    if over_modules is not None:
        yield from passing_in_loop(run.program, shard.place, over_modules)
