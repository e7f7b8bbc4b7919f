"""A fake copy of a layer: same classes, same attributes, fake tensors.

Tracing the live module would touch real memory, draw random numbers, and under FSDP2 leave freed storage behind. The
copy shares no state that a forward could change: containers among its attributes are copies, its hooks are gone.
"""

from __future__ import annotations

import functools
import operator
import types
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ...compat.hooks import FOREIGN_ATTRIBUTES
from ..containers import CONTAINERS, content_of, empty, fill, is_tuple, options_of, tuple_like
from ..untraceable import UntraceableError
from .attached import attributes_of, copied, has_state
from .slots import PLAIN_TENSORS, table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch._subclasses.fake_tensor import FakeTensorMode

    from .slots import Slot

_HOOK_TABLES = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_always_called",
)


def fake_like(tensor: torch.Tensor, mode: FakeTensorMode, device: torch.device | None = None) -> torch.Tensor:
    """A fake tensor with the static shape, strides, dtype and requires_grad of ``tensor``."""
    with mode:
        fake = torch.empty_strided(
            tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=device or tensor.device
        )
    return fake.requires_grad_(tensor.requires_grad)


def fake_layer_of(
    layer: nn.Module,
    slots: Sequence[Slot],
    mode: FakeTensorMode,
    scope: Callable[[str, nn.Module], None],
    device: torch.device | None = None,
) -> tuple[nn.Module, list[torch.Tensor]]:
    """Build the fake copy of ``layer`` and its fake tensors, in the order of ``slots``.

    ``scope`` is called with the name (relative to the layer) and the copy of every module, so that the recorder can
    attach its own hooks.
    """
    copies: dict[int, nn.Module] = {}
    containers: dict[int, Any] = {}
    for name, module in layer.named_modules():
        copy = object.__new__(type(module))
        copies[id(module)] = copy
        copy.__dict__.update({key: _apart(value, containers) for key, value in module.__dict__.items()})
        for table in _HOOK_TABLES:
            copy.__dict__[table] = type(module.__dict__[table])()
        scope(name, copy)
    fakes = [fake_like(slot.fetch(), mode, device) for slot in slots]
    fake_of = {id(slot.fetch()): fake for slot, fake in zip(slots, fakes, strict=True) if slot.within}

    def replaced(value: Any) -> Any:
        return fake_of.get(id(value), _rebound(_apart(value, containers), copies))

    for slot, fake in zip(slots, fakes, strict=True):
        owner = copies[id(slot.module)]
        if not slot.within:
            table_of(owner, slot.kind)[slot.attribute] = fake
            tensor = slot.fetch()
            if type(tensor) not in PLAIN_TENSORS:
                fake.__dict__.update(attributes_of(tensor, replaced))
    for copy in copies.values():
        modules = copy.__dict__["_modules"]
        copy.__dict__["_modules"] = {key: child and copies[id(child)] for key, child in modules.items()}
        for key, value in list(copy.__dict__.items()):
            is_object = key not in FOREIGN_ATTRIBUTES and not isinstance(value, torch.Tensor) and has_state(value)
            copy.__dict__[key] = copied(value, replaced) if is_object else _rebound(value, copies)
    fake_layer = copies[id(layer)]
    fake_layer.__dict__["gradient_checkpointing"] = False
    return fake_layer, fakes


def _apart(value: Any, done: dict[int, Any]) -> Any:
    """Copy containers that a forward may fill, those inside others too, and each once; share the rest."""
    if is_tuple(value):
        items = [_apart(item, done) for item in value]
        return tuple_like(value, items) if any(map(operator.is_not, items, value)) else value
    if not isinstance(value, CONTAINERS):
        return value
    if id(value) not in done:
        made = done[id(value)] = empty(type(value), options_of(value))
        content = content_of(value)
        if isinstance(value, dict):
            content = [(key, _apart(item, done)) for key, item in content]
        elif not isinstance(value, set):
            content = [_apart(item, done) for item in content]
        attributes = getattr(value, "__dict__", {})
        fill(made, content, {name: _apart(item, done) for name, item in attributes.items()})
    return done[id(value)]


def _rebound(value: Any, copies: dict[int, nn.Module]) -> Any:
    """Point what refers to a module of the layer (a patched ``forward``, a back reference) to its copy."""
    if isinstance(value, nn.Module):
        return copies.get(id(value), value)
    if isinstance(value, types.MethodType) and id(value.__self__) in copies:
        return types.MethodType(value.__func__, copies[id(value.__self__)])
    if isinstance(value, functools.partial):
        args = [_rebound(item, copies) for item in value.args]
        keywords = {key: _rebound(item, copies) for key, item in value.keywords.items()}
        return functools.partial(_rebound(value.func, copies), *args, **keywords)
    if isinstance(value, types.FunctionType) and value.__closure__ and _closes_over(value, copies):
        raise UntraceableError(f"{value.__qualname__}, set on the instance, closes over a module of the layer")
    return value


def _closes_over(function: types.FunctionType, copies: dict[int, nn.Module]) -> bool:
    for cell in function.__closure__ or ():
        try:
            content = cell.cell_contents
        except ValueError:
            continue
        owner = getattr(content, "__self__", content)
        if id(owner) in copies:
            return True
    return False
