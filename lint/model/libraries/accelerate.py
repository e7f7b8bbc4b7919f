"""What accelerate does to the models of a run: which plugin an Accelerator prepares them with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values import Result, equals, one, options
from ..events import AcceleratePrepare, AcceleratorBuild, FsdpPlugin

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..run import Run


def prepared_with(run: Run) -> Iterator[tuple[FsdpPlugin, AcceleratePrepare]]:
    """Each plugin for FSDP with each call that prepares objects by an Accelerator that certainly got it."""
    # By the expression that made the object: a launcher may have a function for each of hundreds of settings.
    prepares: dict[ast.AST | None, list[AcceleratePrepare]] = {}
    for prepare in run.of(AcceleratePrepare):
        prepares.setdefault(prepare.call.receiver.node, []).append(prepare)
    plugins: dict[ast.AST | None, list[FsdpPlugin]] = {}
    for plugin in run.of(FsdpPlugin):
        plugins.setdefault(plugin.node, []).append(plugin)
    for accelerator in run.of(AcceleratorBuild):
        made, given = Result(accelerator.call), accelerator.plugins
        prepared = [prepare for prepare in prepares.get(made.node, ()) if one(prepare.call.receiver, made)]
        for node in dict.fromkeys(option.node for option in given):
            for plugin in plugins.get(node, ()):
                if any(one(option, Result(plugin.call)) for option in given):
                    yield from ((plugin, prepare) for prepare in prepared)


def checkpoints_layers(run: Run, plugin: FsdpPlugin) -> bool:
    """Whether ``plugin`` certainly asks accelerate to checkpoint the layers, by an argument or by its attribute."""
    made = Result(plugin.call)
    writes = [write for write in run.writes if write.field == "activation_checkpointing"]
    own = [write for write in writes if any(one(option, made) for option in options(write.obj))]
    if not own:
        return plugin.checkpoints
    is_always_on = plugin.checkpoints or any(not write.place.deeper_than(plugin.place) for write in own)
    return is_always_on and all(equals(write.value, True, "true") is True for write in own)
