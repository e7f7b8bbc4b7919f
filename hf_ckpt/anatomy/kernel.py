"""Which attention kernel the layers of a stack really call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..compat.models import attention_implementation
from ..policy.decision import Role
from .roles import sublayers_by_role

if TYPE_CHECKING:
    from torch import nn


def attention_kernel(layer: nn.Module, config: Any) -> str:
    """transformers' attention implementation of this layer: ``"eager"``, ``"sdpa"``, ``"flash_attention_2"``, ...

    The attention module's own config wins over the model's: a VLM's towers may differ. A layer that knows neither has
    its attention written out, which is what ``"eager"`` means.
    """
    for name in sublayers_by_role(layer).get(Role.ATTENTION, ()):
        for module in layer.get_submodule(name).modules():
            kernel = attention_implementation(getattr(module, "config", None))
            if kernel is not None:
                return kernel
    return attention_implementation(config) or "eager"
