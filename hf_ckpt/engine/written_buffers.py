"""Buffers that a forward writes (running statistics, a codebook, spectral norm's vectors): they are state.

A replay finds them as its forward did, and writes to copies, so that they move once a forward. A plain checkpoint reads
what stands there in backward.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch.utils._python_dispatch import _disable_current_modes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import torch
    from torch import nn

    #: The buffers of modules that a forward wrote, by name, as they were before it.
    Written = Mapping[nn.Module, Mapping[str, torch.Tensor]]

#: Of a module that writes to none in its first forward, buffers of up to so many bytes are still copied before each.
_SMALL = 1 << 20
_watched: weakref.WeakSet[nn.Module] = weakref.WeakSet()
_writing: weakref.WeakSet[nn.Module] = weakref.WeakSet()


class BuffersBefore:
    """The buffers of ``module`` and of all modules inside it, as they are before a forward."""

    __slots__ = ("_copies", "_module", "_versions")

    def __init__(self, module: nn.Module | None = None) -> None:
        owners = [] if module is None else [m for m in module.modules() if m._buffers]
        self._module = type(module).__name__
        self._versions = {owner: _versions(owner) for owner in owners}
        self._copies = _copies(owner for owner in owners if _may_write(owner))

    def written(self) -> Written:
        """What the forward wrote, as it was before. Raises RuntimeError where that is not known any more."""
        found = {owner: before for owner, before in self._versions.items() if not _same(_versions(owner), before)}
        for owner in found.keys() - self._copies.keys():
            _writing.add(owner)
            raise RuntimeError(
                f"{self._module} wrote to large buffers of a {type(owner).__name__} ({', '.join(owner._buffers)}), "
                "which it did not do in its first forward, so it cannot be recomputed as it was; leave this layer out "
                "of the policy"
            )
        _watched.update(self._versions)
        _writing.update(found)
        return {owner: self._copies[owner] for owner in found}


@contextmanager
def on_copies(written: Iterable[Written]) -> Iterator[None]:
    """Let a replay find buffers as they were before its forward, and write to copies of these.

    Of several forwards that wrote to a module's buffers, the first one's are found.
    """
    before = {owner: buffers for each in reversed([*written]) for owner, buffers in each.items()}
    now = {owner: dict(owner._buffers) for owner in before}
    try:
        for owner, copies in _copies_of(before).items():
            owner._buffers.update(copies)
        yield
    finally:
        for owner, buffers in now.items():
            owner._buffers.update(buffers)


def _may_write(owner: nn.Module) -> bool:
    if owner in _writing or owner not in _watched:
        return True
    return sum(buffer.nbytes for buffer in owner._buffers.values() if buffer is not None) <= _SMALL


def _copies(owners: Iterable[nn.Module]) -> dict[nn.Module, dict[str, torch.Tensor]]:
    return _copies_of({owner: {name: b for name, b in owner._buffers.items() if b is not None} for owner in owners})


def _copies_of(buffers: Written) -> dict[nn.Module, dict[str, torch.Tensor]]:
    # Selective checkpointing counts the ops of a replay, and these are none of them (torch/utils/checkpoint.py).
    with _disable_current_modes():
        return {owner: {name: b.detach().clone() for name, b in named.items()} for owner, named in buffers.items()}


def _versions(module: nn.Module) -> dict[str, tuple[torch.Tensor, int]]:
    """The buffers of a module, each with the number of writes to it so far."""
    # Every in-place write raises a tensor's version (VariableVersion, in c10/core/TensorImpl.h).
    return {name: (buffer, buffer._version) for name, buffer in module._buffers.items() if buffer is not None}


def _same(now: Mapping[str, tuple[torch.Tensor, int]], before: Mapping[str, tuple[torch.Tensor, int]]) -> bool:
    return now.keys() == before.keys() and all(
        now[name][0] is buffer and now[name][1] == version for name, (buffer, version) in before.items()
    )
