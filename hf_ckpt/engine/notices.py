"""What the engine says in the log: one line a reason for all layers of a model, on one rank."""

from __future__ import annotations

import logging

from torch import distributed as dist

_LOGGER = logging.getLogger(__name__)


class Notices:
    """The reasons said so far; layers of one model share an instance."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def whole_layer(self, layer: str, reason: str) -> None:
        """Warn that ``layer`` is replayed whole. Equal layers have the same reason, and the report lists them all."""
        if reason in self._said:
            return
        self._said.add(reason)
        level = logging.WARNING if _is_first_rank() else logging.DEBUG
        _LOGGER.log(level, "%s: whole-layer replay, because %s", layer, reason)


def _is_first_rank() -> bool:
    return not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0
