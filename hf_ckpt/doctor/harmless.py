"""Keeps what goes wrong in the doctor away from the run that it observes."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger("hf_ckpt.doctor")


@contextmanager
def harmless(what: str) -> Iterator[None]:
    """What is raised inside is only logged for debugging; ``what`` is then missing."""
    try:
        yield
    except Exception:
        logger.debug("no %s", what, exc_info=True)
