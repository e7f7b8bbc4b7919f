"""Buffers that a forward writes (a batch norm's running statistics): they are state, so a replay writes to copies."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch.utils._python_dispatch import _disable_current_modes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch import nn


def buffer_versions(module: nn.Module | None) -> dict[nn.Module, int]:
    """How often the buffers of each module inside ``module`` were written so far."""
    return {} if module is None else {m: _version(m) for m in module.modules() if m._buffers}


def written_since(versions: Mapping[nn.Module, int]) -> list[nn.Module]:
    """The modules whose buffers were written after ``versions`` were taken."""
    return [module for module, version in versions.items() if _version(module) != version]


@contextmanager
def on_copies(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Let a replay write to copies of the buffers of ``modules``."""
    tables = [(m._buffers, dict(m._buffers)) for m in modules]
    try:
        # Selective checkpointing counts the ops of a replay, and these are none of them (torch/utils/checkpoint.py).
        with _disable_current_modes():
            for table, buffers in tables:
                table.update({name: None if b is None else b.clone() for name, b in buffers.items()})
        yield
    finally:
        for table, buffers in tables:
            table.update(buffers)


def _version(module: nn.Module) -> int:
    # Every in-place write raises a tensor's version (VariableVersion, in c10/core/TensorImpl.h).
    return sum(b._version for b in module._buffers.values() if b is not None)
