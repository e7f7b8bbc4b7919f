"""What is inside the arguments and results of ops: nested tuples, lists and dicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch._ops import OpOverload

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


def tensors_written(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    """The arguments of an op that it writes in place, as its schema says."""
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = kwargs.get(argument.name, args[position] if position < len(args) else None)
            yield from instances_in(torch.Tensor, value)
