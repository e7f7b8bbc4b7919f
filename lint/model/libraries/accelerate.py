"""What accelerate does to the models of a run: which plugin an Accelerator prepares them with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values import Result, one
from ..events import AcceleratePrepare, AcceleratorBuild, FsdpPlugin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..run import Run


def prepared_with(run: Run) -> Iterator[tuple[FsdpPlugin, AcceleratePrepare]]:
    """Each plugin for FSDP with each call that prepares objects by an Accelerator that certainly got it."""
    for accelerator in run.of(AcceleratorBuild):
        made = Result(accelerator.call)
        prepared = [prepare for prepare in run.of(AcceleratePrepare) if one(prepare.call.receiver, made)]
        for plugin in run.of(FsdpPlugin):
            if any(one(option, Result(plugin.call)) for option in accelerator.plugins):
                yield from ((plugin, prepare) for prepare in prepared)
