"""A forward that torch's checkpoint may run again: every later run finds the module as the first one did."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from ..compat.checkpointing import switches_lowered
from .attributes import AttributesBefore
from .foreign_draws import ForeignDraws
from .kept_choices import KeptChoices
from .saved_tensor_hooks import hooks_in_force
from .written_buffers import BuffersBefore, Written, on_copies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from torch import nn

    from .saved_tensor_hooks import Hooks


class Found:
    """What one forward of ``module`` found, chose and drew, for all replays of that forward.

    ``hooks`` are the saved-tensor hooks that choices go through: those in force around the checkpoint.
    """

    __slots__ = ("_attributes", "_choices", "_draws", "_module", "written")

    def __init__(self, module: nn.Module | None, hooks: Hooks) -> None:
        self._module = module
        self._attributes: AttributesBefore | None = None
        self._choices = KeptChoices(module, hooks)
        self._draws = ForeignDraws(module)
        #: The buffers that it changed; a replay runs inside :func:`on_copies` of these.
        self.written = Written()

    @contextmanager
    def noted(self, args: tuple[Any, ...]) -> Iterator[None]:
        """The forward, which is given ``args``, runs inside."""
        before, attributes = BuffersBefore(self._module), AttributesBefore(self._module)
        with self._draws.noted(), self._choices.noted(args):
            yield
        attributes.settle()
        self.written = before.written()
        self._attributes = attributes

    @property
    def is_over(self) -> bool:
        """Whether the forward has ended, so that a replay may come."""
        return self._attributes is not None

    def attributes_restored(self) -> AbstractContextManager[None]:
        """Let a replay find the attributes of the module as the forward did."""
        return nullcontext() if self._attributes is None else self._attributes.restored()

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Let a replay find the module's attributes and switches as the forward did, and choose and draw the same."""
        with (
            self.attributes_restored(),
            switches_lowered(self._module),
            self._choices.handed_on(),
            self._draws.repeated(),
        ):
            yield


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
    found = Found(module, hooks_in_force())

    def run(*args: Any, **kwargs: Any) -> Any:
        if found.is_over:
            replaying()
            with on_copies([found.written]), found.restored():
                return replay(*args, **kwargs)
        with found.noted(args):
            return forward(*args, **kwargs)

    return run
