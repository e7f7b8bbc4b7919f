"""What ``apply`` returns: the policy on the model, measured, reported, and taken back."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from .chunks.measured import MeasuredChunks
from .head.measured import MeasuredHead
from .measuring.make_report import make_report
from .measuring.meter import Meter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn

    from .anatomy import Anatomy
    from .chunks.measured import ChunkedParts
    from .head.install import HeadHandle
    from .install import Installation
    from .measuring.report import Report
    from .planner.batches.batch_planner import BatchPlanner
    from .policy.resolve import ResolvedPolicy


class Handle:
    """A policy applied to a model. Not part of the model: copies and checkpoints of the model never contain it.

    Attributes:
        model: The model, as it was given to ``apply``.
        anatomy: The stacks of decoder layers that were found in it.
        resolved: Everything that the policy asks for on this model.
        installation: The regions that stand in the model, and how each change is taken back.

    Example:
        >>> handle = hf_ckpt.apply(model, "attention+norm")
        >>> with handle.measure():
        ...     model(input_ids=ids, labels=ids).loss.backward()
        >>> print(handle.report())
        >>> handle.restore()
    """

    def __init__(
        self,
        model: nn.Module,
        anatomy: Anatomy,
        resolved: ResolvedPolicy,
        installation: Installation,
    ) -> None:
        self.model = model
        self.anatomy = anatomy
        self.resolved = resolved
        self.installation = installation
        #: Plans each batch under a ``budget`` policy; None otherwise.
        self.planner: BatchPlanner | None = None
        #: The head that ``head(chunks)`` of the policy put on; None without that term.
        self.head: HeadHandle | None = None
        #: The parts of layers that ``mlp(chunks)`` and the like put in chunks, by term of the policy.
        self.chunked: tuple[ChunkedParts, ...] = ()
        #: Whether what applied the policy still runs; None when only ``restore`` ends it.
        self.in_use: Callable[[], bool] | None = None
        self._meter: Meter | None = None

    @property
    def abandoned(self) -> bool:
        """Whether the training that applied the policy is over and left it on the model."""
        return self.in_use is not None and not self.in_use()

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Count, for the forward and backward passes inside, the bytes each layer holds and its replays.

        Counting hooks every saved tensor, so measure a step or two, not the whole run.
        """
        self.start_measuring()
        try:
            yield
        finally:
            self.stop_measuring()

    def start_measuring(self) -> None:
        """Begin what :meth:`measure` does, for callers that cannot use ``with``."""
        self.stop_measuring()
        chunked = tuple(map(MeasuredChunks, self.chunked))
        self._meter = Meter(self.model, self.anatomy, self.installation.regions, self._heads(), chunked)
        self._meter.start()

    def stop_measuring(self) -> None:
        """End it; the figures stay for :meth:`report`."""
        if self._meter is not None:
            self._meter.stop()

    def report(self) -> Report:
        """Say what the policy decided and, when a step was measured, what it did.

        Returns:
            The report, which ``print`` shows as a table. Bytes are those that autograd holds before a backward,
            parameters not counted; replays are summed over everything measured since :meth:`start_measuring`.
        """
        return make_report(self.resolved, self.anatomy, self.installation.regions, self._meter)

    def restore(self) -> None:
        """Bring the model back as it was before ``apply``: same instance attributes, hooks and configs."""
        self.stop_measuring()
        while self.installation.changes:
            self.installation.changes.pop().undo()
        self.installation.regions.clear()
        self.installation.switches.clear()
        self.in_use = None

    def _heads(self) -> list[MeasuredHead]:
        asked = [] if self.head is None else [MeasuredHead(self.head, asked=True)]
        chosen = self.planner.head.own if self.planner is not None else None
        return asked if chosen is None else [*asked, MeasuredHead(chosen, asked=False)]
