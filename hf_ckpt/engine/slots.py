"""Where a layer's parameters live: the attribute of the owning module, never the tensor.

FSDP replaces what stands behind the attribute (a gathered copy in forward and backward, a shard in between), so a
tensor must be fetched through its slot at the moment it is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .untraceable import UntraceableError

if TYPE_CHECKING:
    from collections.abc import Iterator

_PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer)


@dataclass(frozen=True, slots=True)
class Slot:
    """One tensor attribute of one module; ``path`` is its name relative to the layer."""

    module: nn.Module
    attribute: str
    path: str
    kind: str  # "_parameters", "_buffers" or "__dict__" (FSDP1 puts gathered parameters there)
    table: dict[str, Any]  # the dict of that kind, to skip nn.Module's slow attribute lookup

    def fetch(self) -> torch.Tensor:
        """The tensor that stands behind the attribute now."""
        value = self.table.get(self.attribute)
        return getattr(self.module, self.attribute) if value is None else value  # type: ignore[no-any-return]


def table_of(module: nn.Module, kind: str) -> dict[str, Any]:
    """The dict of ``module`` that holds its tensors of this kind."""
    table: dict[str, Any] = module.__dict__
    return table if kind == "__dict__" else table[kind]


def slots_of(layer: nn.Module) -> tuple[Slot, ...]:
    """The tensor attributes of a layer and its submodules, in a fixed order.

    Raises UntraceableError on a tensor subclass (a quantised or distributed weight), whose ops a trace would not show.
    """
    return tuple(_slots(layer))


def _slots(layer: nn.Module) -> Iterator[Slot]:
    for prefix, module in layer.named_modules():
        for kind in ("_parameters", "_buffers", "__dict__"):
            table = table_of(module, kind)
            for name, value in table.items():
                if not isinstance(value, torch.Tensor):
                    continue
                path = f"{prefix}.{name}" if prefix else name
                if type(value) not in _PLAIN:
                    raise UntraceableError(f"{path} is a {type(value).__name__}")
                yield Slot(module, name, path, kind, table)
