"""Buffers that a forward writes (a batch norm's running statistics): they are state, so a replay writes to copies."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch.utils._python_dispatch import _disable_current_modes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import torch
    from torch import nn

#: The buffers of a module, each with the number of writes to it so far.
Versions = dict[str, tuple["torch.Tensor", int]]


def buffer_versions(module: nn.Module | None) -> dict[nn.Module, Versions]:
    """The buffers of each module inside ``module``, and how often they were written so far."""
    return {} if module is None else {m: _versions(m) for m in module.modules() if m._buffers}


def written_since(versions: Mapping[nn.Module, Versions]) -> list[nn.Module]:
    """The modules whose buffers were written, or replaced by others, after ``versions`` were taken."""
    return [module for module, before in versions.items() if not _same(_versions(module), before)]


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


def _versions(module: nn.Module) -> Versions:
    # Every in-place write raises a tensor's version (VariableVersion, in c10/core/TensorImpl.h).
    return {name: (buffer, buffer._version) for name, buffer in module._buffers.items() if buffer is not None}


def _same(now: Versions, before: Versions) -> bool:
    return now.keys() == before.keys() and all(
        now[name][0] is buffer and now[name][1] == version for name, (buffer, version) in before.items()
    )
