"""What names mean behind `try: from torch import x`, `except ImportError: x = None`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..objects.containers import is_none
from ..values import UNKNOWN, Ref

if TYPE_CHECKING:
    from ..values import Value

#: What every release of torch and transformers that programs use has; what newer ones alone have asks for the release.
_ALWAYS_THERE = (
    "torch.utils.checkpoint",
    "torch.utils.checkpoint.checkpoint",
    "torch.utils.checkpoint.checkpoint_sequential",
)


def imported_for_use(tried: dict[str, Value] | None, fallback: dict[str, Value]) -> dict[str, Value]:
    """The names that a `try` block imports and its handler sets to None: whatever uses them uses what was imported.

    Args:
        tried: The names behind the block; None where nothing comes behind it.
        fallback: The names behind the handler.
    """
    return {
        name: value
        for name, value in (tried or {}).items()
        if isinstance(value, Ref) and _is_always_there(value.name) and is_none(fallback.get(name, UNKNOWN))
    }


def _is_always_there(name: str) -> bool:
    return name in _ALWAYS_THERE or name.startswith("transformers.")
