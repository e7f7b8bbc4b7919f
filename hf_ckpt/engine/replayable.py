"""A forward that torch's checkpoint may run again: every later run finds the module as the first one did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..compat.checkpointing import switches_lowered
from .written_buffers import BuffersBefore, on_copies

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from .written_buffers import Written


def replayable(
    forward: Callable[..., Any], replay: Callable[..., Any], module: nn.Module | None, replaying: Callable[[], None]
) -> Callable[..., Any]:
    """A function whose first call is ``forward`` and every later one ``replay``, before which ``replaying`` is called.

    Args:
        forward: The forward of ``module``, or of a part of it.
        replay: What computes the same again.
        module: The module whose buffers and switches a replay must find as the forward did.
        replaying: Told of every replay.
    """
    written: Written | None = None

    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal written
        if written is not None:
            replaying()
            with on_copies([written]), switches_lowered(module):
                return replay(*args, **kwargs)
        before = BuffersBefore(module)
        output = forward(*args, **kwargs)
        written = before.written()
        return output

    return run
