"""Why a layer cannot be replayed from a trace."""

from __future__ import annotations


class UntraceableError(Exception):
    """Tracing this layer would not be faithful; it is replayed whole instead.

    ``reason`` is one clause that completes "whole-layer replay, because ...". ``is_final`` says that every other way to
    trace the layer would end the same, so that none is tried.
    """

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_final = is_final


def in_words(error: BaseException) -> str:
    """An error as part of a reason: its class and the first line of its message."""
    first = (str(error).strip() or "no message").splitlines()[0]
    return f"{type(error).__name__}: {first[:200]}"
