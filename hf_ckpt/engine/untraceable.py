"""Why a layer cannot be replayed from a trace."""

from __future__ import annotations


class UntraceableError(Exception):
    """Tracing this layer would not be faithful; it is replayed whole instead.

    ``reason`` is one clause that completes "whole-layer replay, because ...".
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def in_words(error: BaseException) -> str:
    """An error as part of a reason: its class and the first line of its message."""
    first = (str(error).strip() or "no message").splitlines()[0]
    return f"{type(error).__name__}: {first[:200]}"
