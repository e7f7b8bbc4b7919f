"""Which attention kernel the layers of a stack really call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from ..compat.models import attention_implementation
from ..policy.decision import Role
from .roles import sublayers_by_role

if TYPE_CHECKING:
    from collections.abc import Iterator

UNKNOWN = "unknown"


def attention_kernel(layer: nn.Module, config: Any) -> str:
    """The attention implementation of this layer by transformers' name: ``"eager"``, ``"sdpa"``, ...

    The attention module's own config wins over the model's: a VLM's towers may differ. A layer that knows neither is
    read: ``"sdpa"`` where its code calls a fused kernel, ``"eager"`` where it calls a softmax, else ``"unknown"``.
    """
    attention = [layer.get_submodule(name) for name in sublayers_by_role(layer).get(Role.ATTENTION, ())]
    for owner in (*(module for part in attention for module in part.modules()), None):
        kernel = attention_implementation(config if owner is None else getattr(owner, "config", None))
        if kernel is not None:
            return kernel
    return _kernel_in_code(attention or [layer])


def _kernel_in_code(attention: list[nn.Module]) -> str:
    modules = [module for part in attention for module in part.modules()]
    if any(isinstance(module, nn.MultiheadAttention) for module in modules):
        return "sdpa"
    called = {name for module in modules for name in _names_called(module)}
    if any("scaled_dot_product" in name for name in called):
        return "sdpa"
    if any("flash_attn" in name or "flash_attention" in name for name in called):
        return "flash_attention_2"
    return "eager" if any("softmax" in name.lower() for name in called) else UNKNOWN


def _names_called(module: nn.Module) -> Iterator[str]:
    """Global and attribute names in the methods of a module, and of the plain objects it delegates to.

    diffusers keeps the kernel in a `processor`, an object that is no module.
    """
    for owner in (module, *(value for name, value in vars(module).items() if name == "processor")):
        for cls in type(owner).__mro__:
            if cls.__module__.partition(".")[0] != "torch":
                for method in vars(cls).values():
                    yield from getattr(getattr(method, "__code__", None), "co_names", ())
