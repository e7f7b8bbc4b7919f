"""Finds PEFT adapters that work through a KV cache, which checkpointing drops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

#: PEFT's types that feed what they learn as ``past_key_values``.
_CACHED = {"PREFIX_TUNING": "prefix tuning", "CARTRIDGE": "a cartridge"}


def check_prefix_tuning(model: nn.Module) -> None:
    """Raise ConflictError when an active adapter feeds a KV cache.

    transformers drops the cache of every layer it checkpoints, and a replay would append to it a second time.
    """
    for name, kind in _active_adapters(model):
        if kind in _CACHED:
            raise ConflictError(
                f"the adapter `{name}` is {_CACHED[kind]}, which feeds its prefix as a KV cache, and checkpointing "
                "drops the KV cache: train a prompt (PromptTuningConfig) or LoRA instead, or use policy `none`"
            )


def _active_adapters(model: nn.Module) -> Iterator[tuple[str, str]]:
    """Names and PEFT types of the active adapters. By attributes: peft need not be installed."""
    for module in model.modules():
        configs: Any = getattr(module, "peft_config", None)
        if not isinstance(configs, dict):
            continue
        active: Any = getattr(module, "active_adapter", None)
        for name in [active] if isinstance(active, str) else active or ():
            kind = getattr(configs.get(name), "peft_type", None)
            yield name, str(getattr(kind, "value", kind))
