"""Finds the stacks of decoder layers of a model, by structure first and class second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from .roles import sublayers_by_role

if TYPE_CHECKING:
    from collections.abc import Iterator


def find_stacks(model: nn.Module) -> dict[str, list[tuple[str, nn.Module]]]:
    """The stacks of a model: name of the list of layers -> its layers as (full name, module), in order of execution.

    A stack is an ``nn.ModuleList`` of repeated blocks that are ``GradientCheckpointingLayer``s, or that hold attention
    or a mixer and an MLP side by side (models older than that class, or not of transformers). Where blocks nest (a Swin
    stage holds layers), the inner ones are the layers.
    """
    found = {
        name: layers
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and (layers := _layers_of(name, module))
    }
    return {name: layers for name, layers in found.items() if not _holds_another(name, found)}


def _layers_of(name: str, modules: nn.ModuleList) -> list[tuple[str, nn.Module]]:
    layers = [unwrap(f"{name}.{i}", child) for i, child in enumerate(modules)]
    return layers if layers and all(_is_layer(layer) for _, layer in layers) else []


def unwrap(name: str, module: nn.Module) -> tuple[str, nn.Module]:
    """The module below FSDP1, checkpoint and torch.compile wrappers, and its full name."""
    for inner in ("_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"):
        if inner in module._modules:
            return unwrap(f"{name}.{inner}", module._modules[inner])  # type: ignore[arg-type]
    return name, module


def _is_layer(module: nn.Module) -> bool:
    if isinstance(module, GradientCheckpointingLayer):
        return True
    # A lone attention, MLP or norm in a list is a sublayer, not a layer: it takes attention next to something else.
    roles = sublayers_by_role(module)
    return len(roles) >= 2 and "attention" in roles


def _holds_another(name: str, found: dict[str, list[tuple[str, nn.Module]]]) -> bool:
    return any(other != name and other.startswith(f"{name}.") for other in found)


def iter_checkpointing_models(model: nn.Module) -> Iterator[nn.Module]:
    """Every module through which transformers switches activation checkpointing on and off."""
    return (m for m in model.modules() if hasattr(type(m), "_set_gradient_checkpointing"))
