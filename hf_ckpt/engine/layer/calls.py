"""The call that a layer hands to its ``_gradient_checkpointing_func``, taken apart.

transformers 5.23 passes ``partial(forward, layer, **kwargs)``; earlier releases pass ``partial(super().__call__,
**kwargs)``, whose function is bound to the layer; older modeling code passes the bound method itself.
"""

from __future__ import annotations

import functools
from collections import UserDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..untraceable import UntraceableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Arguments that may differ freely between calls: they are part of the signature by value.
PLAIN_TYPES = (type(None), bool, int, float, str, torch.dtype, torch.device)
_TENSOR_TYPES = (torch.Tensor, nn.Parameter)
_SEQUENCES = (tuple, list, torch.Size)
#: transformers hands key and value states on from layer to layer in a `UserDict` (cache_utils.py, `KVSharingDict`).
_MAPPINGS = (dict, UserDict)


@dataclass(slots=True)
class LayerCall:
    """One call of a layer: ``function(layer, *args, **kwargs)``."""

    layer: nn.Module
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    runs_hooks: bool

    def on(self, fake_layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the same function on another module."""
        return self.function(fake_layer, *args, **kwargs)


def resolve_call(call: Callable[..., Any], args: tuple[Any, ...]) -> LayerCall:
    """Find the layer and its arguments in what the layer passed to its checkpointing function.

    Raises UntraceableError when ``call`` belongs to no module.
    """
    kwargs: dict[str, Any] = {}
    bound: tuple[Any, ...] = ()
    while isinstance(call, functools.partial):
        kwargs = {**call.keywords, **kwargs}
        bound = call.args + bound
        call = call.func
    owner = getattr(call, "__self__", None)
    if isinstance(owner, nn.Module):
        return LayerCall(owner, call.__func__, bound + args, kwargs, runs_hooks=True)  # type: ignore[attr-defined]
    if bound and isinstance(bound[0], nn.Module):
        return LayerCall(bound[0], call, bound[1:] + args, kwargs, runs_hooks=False)
    raise UntraceableError(f"{call!r} is not a call of a module")


def flatten(value: Any, leaves: list[torch.Tensor]) -> Any:
    """Append the tensors in ``value`` to ``leaves``; return the rest as one hashable structure.

    Raises UntraceableError on an object that is neither a tensor, plain data nor a container of those.
    """
    kind = type(value)
    if kind in _TENSOR_TYPES:
        leaves.append(value)
        return len(leaves) - 1, kind
    if kind in PLAIN_TYPES:
        return value, kind
    if kind in _SEQUENCES:
        return kind, tuple([flatten(item, leaves) for item in value])
    if issubclass(kind, _MAPPINGS):
        return kind, tuple([(key, flatten(item, leaves)) for key, item in value.items()])
    raise UntraceableError(f"an argument of the layer is a {kind.__name__}")


def describe(value: Any, leaves: list[torch.Tensor], key: list[Any]) -> None:
    """Append the tensors in ``value`` to ``leaves``, and to ``key`` everything about ``value`` that a trace depends on.

    What :func:`flatten` does, fast enough for every call. Raises UntraceableError likewise.
    """
    kind = type(value)
    if kind in _TENSOR_TYPES:
        if value.is_inference():  # it has no version, so a write to it would go unseen
            raise UntraceableError("an argument of the layer was made in inference mode")
        leaves.append(value)
        key += (value.shape, value.stride(), value.dtype, value.device, value.requires_grad)
    elif kind in PLAIN_TYPES:
        key += (kind, value)
    elif issubclass(kind, _MAPPINGS):
        key += (kind, len(value))
        for name, item in value.items():
            key.append(name)
            describe(item, leaves, key)
    elif kind in _SEQUENCES:
        key += (kind, len(value))
        for item in value:
            describe(item, leaves, key)
    else:
        raise UntraceableError(f"an argument of the layer is a {kind.__name__}")


def numbers_in(structure: Any) -> Iterator[int]:
    """The ints (not the bools) in what :func:`flatten` returned, in order."""
    first, second = structure
    if second is int:
        yield first
    elif first in _SEQUENCES:
        for item in second:
            yield from numbers_in(item)
    elif _is_mapping(first):
        for _, item in second:
            yield from numbers_in(item)


def with_numbers(structure: Any, numbers: Iterator[Any]) -> Any:
    """What :func:`flatten` returned, with ``numbers`` in place of its ints, in order."""
    first, second = structure
    if second is int:
        return next(numbers), int
    if first in _SEQUENCES:
        return first, tuple([with_numbers(item, numbers) for item in second])
    if _is_mapping(first):
        return first, tuple([(key, with_numbers(item, numbers)) for key, item in second])
    return structure


def unflatten(structure: Any, leaves: list[Any]) -> Any:
    """Rebuild what :func:`flatten` took apart, in fresh containers, with ``leaves`` in place of the tensors."""
    first, second = structure
    if second in _TENSOR_TYPES:
        return leaves[first]
    if first in _SEQUENCES:
        return first([unflatten(item, leaves) for item in second])
    if _is_mapping(first):
        return first({key: unflatten(item, leaves) for key, item in second})
    return first


def _is_mapping(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, _MAPPINGS)
