"""The anatomy of a model: its stacks as pure data for policies, and the modules behind them for engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from ..compat.models import owner_of
from ..compat.wrappers import base_class_name, clean_name
from ..errors import ModelStructureError
from ..policy.decision import Layer, Stack, Tower
from .kernel import attention_kernel
from .roles import sublayers_by_role
from .stacks import find_stacks
from .towers import tower_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """One decoder layer: what policies know of it, and its module."""

    info: Layer
    module: nn.Module


@dataclass(frozen=True, slots=True)
class Anatomy:
    """The stacks of a model and their layers, in order of definition."""

    stacks: tuple[Stack, ...]
    layers: tuple[DecoderLayer, ...]

    def layers_of(self, stack: Stack) -> Iterator[DecoderLayer]:
        """The layers of one stack."""
        names = {layer.name for layer in stack.layers}
        return (layer for layer in self.layers if layer.info.name in names)

    def reached_by_tokens(self) -> Anatomy:
        """The stacks that token ids reach: the language layers of a multimodal model, all layers of any other."""
        stacks = tuple(stack for stack in self.stacks if stack.tower is Tower.LANGUAGE) or self.stacks
        return Anatomy(stacks, tuple(layer for stack in stacks for layer in self.layers_of(stack)))


def read_anatomy(model: nn.Module) -> Anatomy:
    """Find the decoder layers of a model.

    Args:
        model: The model, also inside PEFT, DDP, FSDP1, FSDP2 and torch.compile wrappers.

    Returns:
        Its stacks and their layers, in order of definition.

    Raises:
        ModelStructureError: There are none; the message names what was looked for.
    """
    found = find_stacks(model)
    if not found:
        raise ModelStructureError(
            f"{type(model).__name__} has no decoder layers: looked for an nn.ModuleList whose members are "
            "GradientCheckpointingLayers or hold attention beside an MLP or a norm, and found none; pass the model "
            "itself, not its output head or a bare module"
        )
    layers: list[DecoderLayer] = []
    stacks: list[Stack] = []
    for name, members in found.items():
        infos = [_layer_info(index, full_name, module) for index, (full_name, module) in enumerate(members)]
        layers.extend(DecoderLayer(info, module) for info, (_, module) in zip(infos, members, strict=True))
        stacks.append(_stack(model, name, infos, members[0][1]))
    return Anatomy(tuple(stacks), tuple(layers))


def _layer_info(index: int, name: str, module: nn.Module) -> Layer:
    return Layer(index, clean_name(name), base_class_name(module), sublayers_by_role(module))


def _stack(model: nn.Module, name: str, infos: list[Layer], first: nn.Module) -> Stack:
    owner = owner_of(model, name)
    config: Any = getattr(owner, "config", None)
    tower = tower_of(owner, (clean_name(name), infos[0].class_name))
    return Stack(clean_name(name), tower, tuple(infos), attention_kernel(first, config))


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
