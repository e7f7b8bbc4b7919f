"""Keeps a policy in place while others switch activation checkpointing off and on again.

TRL does so around every generation, PEFT while it prepares a model, users by hand. All of them end up in
``PreTrainedModel._set_gradient_checkpointing`` (transformers 4.35 to 5.x), which overwrites every layer's flag and
function. An instance-level stand-in lets that happen and then puts the policy's own back, or off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers.modeling_layers import GradientCheckpointingLayer

from ._undo import AttributeChange

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from .handle import Handle


class SwitchKeeper:
    """Stands as one model's ``_set_gradient_checkpointing``.

    ``switches`` are the layers whose transformers switch the policy uses, with the function each must have (None: the
    layer keeps its saved tensors, or its regions sit elsewhere). ``handle`` takes the policy off; None on a copy of the
    model, which nothing can restore.
    """

    def __init__(self, model: nn.Module, handle: Handle) -> None:
        self.model = model
        self.switches = handle.installation.switches
        self.regions = handle.installation.regions
        self.handle: Handle | None = handle

    def __getstate__(self) -> dict[str, Any]:
        # The handle is of one model, and leads to its trainer: copies and pickles of the model go without.
        return self.__dict__ | {"handle": None}

    def __call__(self, enable: bool = True, gradient_checkpointing_func: Any = None, **kwargs: Any) -> None:
        """What transformers does, then the policy again."""
        switch: Callable[..., None] = type(self.model)._set_gradient_checkpointing  # type: ignore[attr-defined]
        if gradient_checkpointing_func is not None:
            kwargs["gradient_checkpointing_func"] = gradient_checkpointing_func
        switch(self.model, enable=enable, **kwargs)
        for region in self.regions:
            region.active = enable
        for layer, function in self.switches:
            set_switch(layer, enable, function)


def set_switch(layer: nn.Module, enable: bool, function: Any) -> list[AttributeChange]:
    """Set transformers' switch of one layer; off when ``function`` is None."""
    changes = [AttributeChange(layer, "gradient_checkpointing", enable and function is not None)]
    if function is not None:
        changes.append(AttributeChange(layer, "_gradient_checkpointing_func", function))
    return changes


def has_switch(layer: nn.Module) -> bool:
    """Whether transformers can switch activation checkpointing of this layer by itself."""
    return isinstance(layer, GradientCheckpointingLayer)
