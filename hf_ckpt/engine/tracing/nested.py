"""What is inside the arguments and results of ops: nested tuples, lists and dicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


def instances_in(kind: type[T], value: Any) -> Iterator[T]:
    """All instances of ``kind`` in nested tuples, lists and dicts, in order."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from instances_in(kind, item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from instances_in(kind, item)
