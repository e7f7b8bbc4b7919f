"""Finds the stacks of decoder layers of a model, by structure first and class second."""

from __future__ import annotations

from torch import nn

from ..compat.checkpointing import supports_checkpointing
from ..compat.wrappers import unwrap
from .roles import sublayers_by_role


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


def _is_layer(module: nn.Module) -> bool:
    if supports_checkpointing(module):
        return True
    # A lone attention, MLP or norm in a list is a sublayer, not a layer: it takes attention next to something else.
    roles = sublayers_by_role(module)
    return len(roles) >= 2 and "attention" in roles


def _holds_another(name: str, found: dict[str, list[tuple[str, nn.Module]]]) -> bool:
    return any(other != name and other.startswith(f"{name}.") for other in found)
