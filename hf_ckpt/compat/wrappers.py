"""What DDP, FSDP, DeepSpeed ZeRO-3, torch.compile, checkpoint wrappers and PEFT put around modules and parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
    """Whether this rank holds only a shard of it (FSDP2, tensor parallelism, DeepSpeed ZeRO-3)."""
    return isinstance(parameter, DTensor) or is_zero3_shard(parameter)


def is_zero3_shard(tensor: torch.Tensor) -> bool:
    """Whether it is a parameter that DeepSpeed ZeRO-3 empties, and gathers around the module that it belongs to.

    The attribute is its mark (deepspeed/runtime/zero/partition_parameters.py).
    """
    return hasattr(tensor, "ds_id")


def stands_for_parameter(attribute: object) -> bool:
    """Whether FSDP1 put it on a module in the place of a parameter, while the unit around the module runs.

    It is a view of the unit's flat parameter (``_use_unsharded_views``, in torch/distributed/fsdp/_flat_param.py).
    """
    return isinstance(attribute, torch.Tensor) and isinstance(attribute._base, FlatParameter)


def local_shard(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's shard of a DTensor, or the tensor itself."""
    local: torch.Tensor = getattr(tensor, "_local_tensor", tensor)
    return local


@dataclass(frozen=True, slots=True)
class ShardedWeight:
    """A weight of which FSDP2 stores a shard.

    Attributes:
        elements: Of what is gathered: the weight, or under tensor parallelism this rank's part of it.
        dtype: That of the shard.
        trained: Whether it has a gradient.
        owners: The modules that have it.
    """

    elements: int
    dtype: torch.dtype
    trained: bool
    owners: tuple[nn.Module, ...]


@dataclass(frozen=True, slots=True)
class ShardedUnit:
    """A module that FSDP2 gathers as a whole.

    Attributes:
        weights: Its own, without those of units inside.
        computes_in: The dtype of its gathered weights and their gradients; None for that of the shards.
        reduces_in: The dtype in which gradients are reduced; None for that of the gradients.
        stays_whole: Whether it is not sharded again between forward and backward, as the outermost one is not.
        freed: Whether its backward shards it again.
        ranks: Over how many ranks each weight is sharded.
        replicated: Whether other ranks have the same shards, and sum the gradients of them (HSDP).
    """

    weights: tuple[ShardedWeight, ...]
    computes_in: torch.dtype | None
    reduces_in: torch.dtype | None
    stays_whole: bool
    freed: bool
    ranks: int
    replicated: bool


def sharded_units(model: nn.Module) -> list[ShardedUnit]:
    """The units of a model that ``fully_shard`` was called for, outer ones first."""
    inside: set[int] = set()
    found = []
    for unit in (module for module in model.modules() if isinstance(module, FSDPModule)):
        found.append(_sharded_unit(unit, outermost=id(unit) not in inside))
        inside |= set(map(id, _modules(unit)))
    return found


def _modules(unit: Any) -> list[nn.Module]:
    return list(unit.modules())


def _sharded_unit(unit: Any, *, outermost: bool) -> ShardedUnit:
    state = unit._get_fsdp_state()
    # _fsdp_state.py: torch 2.13 has a list of groups, and raises where there are several and one is asked for.
    groups = state._fsdp_param_groups if hasattr(state, "_fsdp_param_groups") else [state._fsdp_param_group]
    groups = [group for group in groups if group is not None]
    # The outermost unit learns in its first forward that it stays whole.
    left = outermost and getattr(state, "_auto_reshard_after_forward", True)
    return ShardedUnit(
        tuple(_sharded_weight(each) for group in groups for each in group.fsdp_params),
        state._mp_policy.param_dtype,
        state._mp_policy.reduce_dtype,
        left or all(group.post_forward_mesh_info is None for group in groups),
        all(group.reshard_after_backward for group in groups),
        min((getattr(group.mesh_info, "shard_mesh_size", 1) for group in groups), default=1),
        any(hasattr(group.mesh_info, "replicate_mesh_size") for group in groups),
    )


def _sharded_weight(each: Any) -> ShardedWeight:
    # _fsdp_param.py: between forward and backward a unit that stays whole has plain tensors in the place of its shards.
    shard, places = each.sharded_param, each._module_info
    return ShardedWeight(
        each._orig_size.numel(), shard.dtype, shard.requires_grad, (places.module, *places.shared_modules)
    )
