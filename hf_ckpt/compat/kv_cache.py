"""Turns the KV cache off for training, on every sub-config.

A cache and recompute exclude each other: the replay would append to it a second time. ``Trainer`` sets
``config.use_cache`` of the top-level config only; a VLM's text config keeps its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import Cache, PretrainedConfig

from .._undo import AttributeChange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn


def disable_kv_cache(model: nn.Module) -> list[AttributeChange]:
    """Set ``use_cache=False`` on every config of the model that has it; the changes undo it."""
    return [
        AttributeChange(config, "use_cache", False) for config in _configs(model) if getattr(config, "use_cache", False)
    ]


def _configs(model: nn.Module) -> Iterator[PretrainedConfig]:
    seen: set[int] = set()
    pending = [getattr(module, "config", None) for module in model.modules()]
    while pending:
        config = pending.pop()
        if not isinstance(config, PretrainedConfig) or id(config) in seen:
            continue
        seen.add(id(config))
        yield config
        pending.extend(vars(config).values())


def without_cache(value: Any) -> Any:
    """None for a KV cache, anything else as it is."""
    return None if isinstance(value, Cache) else value
