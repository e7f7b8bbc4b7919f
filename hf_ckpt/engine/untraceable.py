"""Why a layer cannot be replayed from a trace."""

from __future__ import annotations


class UntraceableError(Exception):
    """Tracing this layer would not be faithful; it is replayed whole instead.

    ``reason`` is one clause that completes "whole-layer replay, because ...".
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
