"""What DDP, FSDP1, FSDP2, torch.compile, checkpoint wrappers and PEFT put around modules and parameters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import ActivationWrapper
from torch.distributed.fsdp import FlatParameter, FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor

if TYPE_CHECKING:
    from torch import nn

# DDP and DataParallel add `module.` at the root only; a model may well have a submodule of that name further down.
_ROOT = re.compile(r"^(?:module\.|_orig_mod\.)+")
_INNER = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod")
_INSIDE = re.compile(rf"(?:{'|'.join(_INNER)})\.")
_PEFT = re.compile(r"^base_model\.model\.")


def clean_name(name: str) -> str:
    """``name`` as the user knows it: without DDP, FSDP1, torch.compile, checkpoint-wrapper and PEFT prefixes."""
    return _PEFT.sub("", _INSIDE.sub("", _ROOT.sub("", name + "."))).removesuffix(".")


def unwrap(name: str, module: nn.Module) -> tuple[str, nn.Module]:
    """The module below FSDP1, checkpoint and torch.compile wrappers, and its full name."""
    for inner in _INNER:
        if inner in module._modules:
            return unwrap(f"{name}.{inner}", module._modules[inner])  # type: ignore[arg-type]
    return name, module


def base_class_name(module: nn.Module) -> str:
    """The module's own class name: FSDP2's ``fully_shard`` gives a module a subclass named ``FSDP<Class>``."""
    cls = type(module)
    return cls.__mro__[1].__name__ if cls.__name__ == f"FSDP{cls.__mro__[1].__name__}" else cls.__name__


def is_checkpoint_wrapper(module: nn.Module) -> bool:
    """Whether it is torch's activation wrapper (checkpoint or CPU offload), which accelerate's FSDP plugin puts on."""
    return isinstance(module, ActivationWrapper)


def gathers_parameters(module: nn.Module) -> bool:
    """Whether it is an FSDP unit: its parameters are whole only while it runs."""
    return isinstance(module, FSDPModule | FullyShardedDataParallel)


def is_sharded(parameter: torch.Tensor) -> bool:
    """Whether this rank holds only a shard of it (FSDP2, tensor parallelism)."""
    return isinstance(parameter, DTensor)


def stands_for_parameter(attribute: object) -> bool:
    """Whether FSDP1 put it on a module in the place of a parameter, while the unit around the module runs.

    It is a view of the unit's flat parameter (``_use_unsharded_views``, in torch/distributed/fsdp/_flat_param.py).
    """
    return isinstance(attribute, torch.Tensor) and isinstance(attribute._base, FlatParameter)


def local_shard(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's shard of a DTensor, or the tensor itself."""
    local: torch.Tensor = getattr(tensor, "_local_tensor", tensor)
    return local
