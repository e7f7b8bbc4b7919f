"""What stands around the decoder layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Anatomy


def around_layers(model: nn.Module, anatomy: Anatomy) -> Iterator[nn.Module]:
    """The model, the module in it that holds all decoder layers, and so on inwards."""
    layers = {id(layer.module) for layer in anatomy.layers}
    module: nn.Module | None = model
    while module is not None and id(module) not in layers:
        if not isinstance(module, nn.ModuleList | nn.ModuleDict):
            yield module
        module = next((child for child in module.children() if _holds(child, layers)), None)


def _holds(module: nn.Module, layers: set[int]) -> bool:
    return layers <= {id(inner) for inner in module.modules()}
