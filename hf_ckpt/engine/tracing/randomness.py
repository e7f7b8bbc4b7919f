"""Which ops draw random numbers."""

from __future__ import annotations

from typing import Any

import torch


def draws_random_numbers(func: torch._ops.OpOverload, templates: tuple[Any, dict[str, Any]]) -> bool:
    """Whether ``func``, called like this, draws random numbers: attention with a dropout of 0 does not."""
    return torch.Tag.nondeterministic_seeded in func.tags and _argument(func, templates, "dropout_p") != 0.0


def uses_own_generator(func: torch._ops.OpOverload, templates: tuple[Any, dict[str, Any]]) -> bool:
    """Whether the numbers come from a ``torch.Generator`` of the layer's own, whose state nobody saves."""
    return _argument(func, templates, "generator") is not None


def _argument(func: torch._ops.OpOverload, templates: tuple[Any, dict[str, Any]], name: str) -> Any:
    args, kwargs = templates
    for position, argument in enumerate(func._schema.arguments):
        if argument.name == name:
            default = argument.default_value if argument.has_default_value() else None
            return kwargs.get(name, args[position] if position < len(args) else default)
    return None
