"""Ops whose fake kernel is stricter than the real one, or that have none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from ..untraceable import UntraceableError
from .made_up import outcome_of
from .op_arguments import instances_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch._ops import OpOverload

_WITH_FAKE_KERNELS = frozenset({"aten", "prims"})


def run_fake(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run ``func`` on fake tensors."""
    if func is torch.ops.aten._grouped_mm.default and args[0].dtype is not torch.bfloat16:
        return _grouped_mm(args, kwargs)
    if func is torch.ops.aten.native_batch_norm.default and args[0].device.type == "cpu" and args[0].dim() < 4:
        return _cpu_batch_norm(args)
    if func.namespace in _WITH_FAKE_KERNELS:
        return func(*args, **kwargs)
    try:
        return func(*args, **kwargs)
    except Exception as error:
        try:
            return _run_on_made_up(func, args, kwargs)
        except UntraceableError as refusal:
            raise UntraceableError(f"{func} cannot run on fake tensors, and {refusal.reason}") from error


def _run_on_made_up(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a custom op without a fake kernel makes, seen by running it on made-up tensors."""
    if any(argument.alias_info is not None for argument in (*func._schema.arguments, *func._schema.returns)):
        raise UntraceableError("it writes or returns a tensor that it is given")
    leaves, spec = tree_flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    returned: list[Any] = []

    def call(given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        real = iter(given)
        positional, named = tree_unflatten([next(real) if isinstance(x, torch.Tensor) else x for x in leaves], spec)
        returned[:] = [func(*positional, **named)]
        return list(instances_in(torch.Tensor, returned[0]))

    outcome = outcome_of(call, tensors)
    if outcome.drawn is not None:
        raise UntraceableError("it draws random numbers")
    if len(outcome.fresh) != len(outcome.windows):
        raise UntraceableError("its results share memory")
    return tree_map_only(torch.Tensor, _empty_like, returned[0])


def _empty_like(real: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tuple(real.shape), real.stride(), dtype=real.dtype, device=real.device)


def _grouped_mm(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """The CPU kernel takes every floating dtype, its fake kernel bfloat16 only."""
    half = [item.to(torch.bfloat16) if _is_floating(item) else item for item in args]
    output: torch.Tensor = torch.ops.aten._grouped_mm.default(*half, **kwargs)
    return torch.empty_strided(output.shape, output.stride(), dtype=args[0].dtype, device=args[0].device)


def _cpu_batch_norm(args: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
    """The CPU kernel makes a row-major tensor (aten/src/ATen/native/Normalization.cpp), its fake one a look-alike."""
    output, *statistics = torch.ops.aten.native_batch_norm.default(*args)
    return torch.empty(output.shape, dtype=output.dtype, device=output.device), *statistics


def _is_floating(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.is_floating_point()
