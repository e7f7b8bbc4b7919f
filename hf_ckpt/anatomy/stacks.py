"""Finds the stacks of decoder layers of a model, by structure first and class second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from ..compat.checkpointing import supports_checkpointing
from ..compat.wrappers import unwrap
from .roles import sublayers_by_role

if TYPE_CHECKING:
    from collections.abc import Callable

Stacks = dict[str, list[tuple[str, nn.Module]]]


def find_stacks(model: nn.Module) -> Stacks:
    """The stacks of a model: name of the list of layers -> its layers as (full name, module), in order of definition.

    A stack is an ``nn.ModuleList`` (or ``nn.Sequential``) of repeated blocks that are ``GradientCheckpointingLayer``s,
    or that hold attention or a mixer and an MLP side by side. Where blocks nest (a Swin stage holds layers), the inner
    ones are the layers; blocks beside them that hold none stay layers. In a model without any of these (a
    convolutional network), blocks of one class that repeat are the layers.
    """
    return _innermost(_lists(model, _is_layer)) or _innermost(_lists(model, _is_block, repeated=True))


def _lists(model: nn.Module, accepts: Callable[[nn.Module], bool], *, repeated: bool = False) -> Stacks:
    found: Stacks = {}
    for name, module in model.named_modules():
        if not isinstance(module, nn.ModuleList | nn.Sequential):
            continue
        layers = [unwrap(f"{name}.{key}", child) for key, child in module.named_children()]
        alike = not repeated or (len(layers) > 1 and len({type(layer) for _, layer in layers}) == 1)
        if layers and alike and all(accepts(layer) for _, layer in layers):
            found[name] = layers
    return found


def _innermost(found: Stacks) -> Stacks:
    """Without blocks that hold a list of layers themselves."""
    kept = {name: [layer for layer in layers if not _holds_one(layer[0], found)] for name, layers in found.items()}
    return {name: layers for name, layers in kept.items() if layers}


def _holds_one(layer: str, found: Stacks) -> bool:
    return any(name.startswith(f"{layer}.") for name in found)


def _is_layer(module: nn.Module) -> bool:
    if supports_checkpointing(module):
        return True
    # A lone attention, MLP or norm in a list is a sublayer, not a layer: it takes attention next to something else.
    roles = sublayers_by_role(module)
    return len(roles) >= 2 and "attention" in roles


def _is_block(module: nn.Module) -> bool:
    """Several matrices or convolutions: one of them with its norm and activation is a part of a block."""
    return sum(parameter.ndim > 1 for parameter in module.parameters()) > 1
