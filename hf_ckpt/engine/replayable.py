"""A forward that torch's checkpoint may run again: every later run finds the module as the first one did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..compat.checkpointing import switches_lowered
from .attributes import AttributesBefore
from .foreign_draws import ForeignDraws
from .kept_choices import KeptChoices
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
        module: The module whose buffers, attributes, switches and choices a replay must find as the forward did, and
            whose draws of Python's and NumPy's random numbers it repeats.
        replaying: Told of every replay.
    """
    written: Written | None = None
    attributes: AttributesBefore | None = None
    choices = KeptChoices(module)
    draws = ForeignDraws(module)

    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal written, attributes
        if written is not None and attributes is not None:
            replaying()
            with (
                on_copies([written]),
                attributes.restored(),
                switches_lowered(module),
                choices.handed_on(),
                draws.repeated(),
            ):
                return replay(*args, **kwargs)
        before, attributes = BuffersBefore(module), AttributesBefore(module)
        with draws.noted(), choices.noted(args):
            output = forward(*args, **kwargs)
        attributes.settle()
        written = before.written()
        return output

    return run
