"""Runs a model without torch's checkpoint, whoever calls it.

``torch.utils.checkpoint.checkpoint`` looks up two names in its own module: ``CheckpointFunction`` and
``_checkpoint_without_reentrant_generator``. What stands there meanwhile calls the function and saves everything.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch.utils.checkpoint as torch_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def stand_in_for_checkpoint(reentrant: Any, generator: Any) -> Iterator[None]:
    """Let these stand under the two names inside."""
    before = torch_checkpoint.CheckpointFunction, torch_checkpoint._checkpoint_without_reentrant_generator
    torch_checkpoint.CheckpointFunction = reentrant  # type: ignore[misc]
    torch_checkpoint._checkpoint_without_reentrant_generator = generator
    try:
        yield
    finally:
        torch_checkpoint.CheckpointFunction = before[0]  # type: ignore[misc]
        torch_checkpoint._checkpoint_without_reentrant_generator = before[1]


@contextmanager
def without_checkpointing() -> Iterator[None]:
    """Every checkpoint inside is a plain call."""
    with stand_in_for_checkpoint(_Plain, _plain):
        yield


class _Plain:
    """Stands as ``CheckpointFunction``."""

    @staticmethod
    def apply(function: Any, preserve: bool, *args: Any) -> Any:
        """Call it."""
        return function(*args)


def _plain(*_: Any, **__: Any) -> Iterator[None]:
    """Stands as the generator around the forward of a non-reentrant checkpoint."""
    yield
