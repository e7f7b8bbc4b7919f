"""Where a layer's parameters live: the attribute of the owning module, never the tensor.

FSDP replaces what stands behind the attribute (a gathered copy in forward and backward, a shard in between), so a
tensor must be fetched through its slot at the moment it is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ...compat.hooks import FOREIGN_ATTRIBUTES
from ...compat.wrappers import is_zero3_shard
from ..untraceable import UntraceableError
from .attached import has_state, is_plain_storage, tensors_in

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Classes of tensors without attributes of their own.
PLAIN_TENSORS = (torch.Tensor, nn.Parameter, nn.Buffer)


@dataclass(frozen=True, slots=True)
class Slot:
    """One tensor attribute of one module; ``path`` is its name relative to the layer.

    ``within`` leads on, attribute by attribute, to a tensor that hangs on what stands behind the module's attribute.
    """

    module: nn.Module
    attribute: str
    path: str
    kind: str  # "_parameters", "_buffers" or "__dict__" (FSDP1 puts gathered parameters there)
    table: dict[str, Any]  # the dict of that kind, to skip nn.Module's slow attribute lookup
    within: tuple[str, ...] = ()

    def fetch(self) -> torch.Tensor:
        """The tensor that stands behind the attribute now."""
        value = self.table.get(self.attribute)
        if value is None:
            value = getattr(self.module, self.attribute)
        for name in self.within:
            value = getattr(value, name)
        return value  # type: ignore[no-any-return]


def table_of(module: nn.Module, kind: str) -> dict[str, Any]:
    """The dict of ``module`` that holds its tensors of this kind."""
    table: dict[str, Any] = module.__dict__
    return table if kind == "__dict__" else table[kind]


def slots_of(layer: nn.Module) -> tuple[Slot, ...]:
    """The tensor attributes of a layer and its submodules, in a fixed order.

    Raises UntraceableError on a tensor subclass that dispatches ops itself (a distributed weight): a trace would not
    show what they do. It does so on a weight that DeepSpeed gathers, too.
    """
    return tuple(_slots(layer))


def _slots(layer: nn.Module) -> Iterator[Slot]:
    attached: set[int] = set()
    for prefix, module in layer.named_modules():
        for kind in ("_parameters", "_buffers", "__dict__"):
            table = table_of(module, kind)
            for name, value in table.items():
                path = f"{prefix}.{name}" if prefix else name
                is_tensor = isinstance(value, torch.Tensor)
                if is_tensor:
                    _check(value, path)
                    yield Slot(module, name, path, kind, table)
                if (is_tensor and type(value) not in PLAIN_TENSORS) or (not is_tensor and _is_object(name, value)):
                    for within, tensor in tensors_in(value):
                        if id(tensor) not in attached:
                            attached.add(id(tensor))
                            _check(tensor, path)
                            yield Slot(module, name, ".".join((path, *within)), kind, table, within)


def _is_object(name: str, value: Any) -> bool:
    return name not in FOREIGN_ATTRIBUTES and has_state(value)


def _check(tensor: torch.Tensor, path: str) -> None:
    if type(tensor) not in PLAIN_TENSORS and not is_plain_storage(tensor):
        raise UntraceableError(f"{path} is a {type(tensor).__name__}")
    if is_zero3_shard(tensor):  # it is empty until DeepSpeed's hooks gather it
        raise UntraceableError(f"{path} is a shard of DeepSpeed ZeRO-3")
