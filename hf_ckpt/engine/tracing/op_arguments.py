"""What ops are called with: instances in nested arguments, what is written, whether random numbers are drawn."""

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
            yield from instances_in(torch.Tensor, _given(argument, position, args, kwargs))


def draws_random_numbers(func: OpOverload, templates: tuple[Any, dict[str, Any]]) -> bool:
    """Whether ``func``, called like this, draws random numbers: attention with a dropout of 0 does not."""
    return torch.Tag.nondeterministic_seeded in func.tags and _argument(func, templates, "dropout_p") != 0.0


def uses_own_generator(func: OpOverload, templates: tuple[Any, dict[str, Any]]) -> bool:
    """Whether the numbers come from a ``torch.Generator`` of the layer's own, whose state nobody saves."""
    return _argument(func, templates, "generator") is not None


def _argument(func: OpOverload, templates: tuple[Any, dict[str, Any]], name: str) -> Any:
    for position, argument in enumerate(func._schema.arguments):
        if argument.name == name:
            return _given(argument, position, *templates)
    return None


def _given(argument: torch.Argument, position: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    default = argument.default_value if argument.has_default_value() else None
    return kwargs.get(argument.name, args[position] if position < len(args) else default)
