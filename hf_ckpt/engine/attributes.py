"""Attributes of modules, which somebody may set between a forward and its replay.

A parent hands a scale on before each call, or a module counts its calls. A replay finds what the forward found.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import torch
from torch import nn

from .readings import copied, reading_of, share, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .readings import Reading

#: What torch itself keeps on a module. Parameters and buffers are followed elsewhere (``engine/written_buffers.py``).
_TORCHS = frozenset(vars(nn.Module())) - {"training", "_modules"} | {"forward"}
#: What DeepSpeed's hooks count on a module (deepspeed/runtime/zero/parameter_offload.py), which no forward reads.
_DEEPSPEEDS = frozenset({"applied_pre_backward_ref_cnt", "pre_bwd_fn", "post_bwd_fn"})
_NOBODY_READS = _TORCHS | _DEEPSPEEDS
#: Longer and deeper containers are compared by what they are and how long.
MOST_ITEMS, DEEPEST = 256, 4
_CONTAINERS = frozenset({list, tuple, set, dict})
#: Of a module whose first forward did not write them, tensors of up to so many bytes are still copied before each.
_SMALL = 1 << 20
#: Modules that had a forward, and those of them in whose forwards a tensor among the attributes was written in place.
_seen: WeakSet[nn.Module] = WeakSet()
_writers: WeakSet[nn.Module] = WeakSet()


class AttributesBefore:
    """The attributes of ``module`` and of all modules inside it, as they are before a forward."""

    __slots__ = ("_copies", "_readings", "_values")

    def __init__(self, module: nn.Module | None) -> None:
        self._values: dict[nn.Module, dict[str, Any]] = {}
        #: By id, the tensors among the values.
        self._readings: dict[int, Reading] = {}
        self._copies: list[tuple[nn.Module, torch.Tensor, Reading, torch.Tensor]] = []
        for owner in () if module is None else module.modules():
            if type(owner).__module__.startswith("torch.distributed."):  # FSDP knows in which pass it is
                continue
            values = self._values[owner] = attributes_of(owner)
            for name, value in values.items():
                if type(value) in _CONTAINERS or _is_followed(value):
                    values[name] = _apart(value, self._read(owner))

    def settle(self) -> None:
        """The forward is over."""
        for owner, tensor, reading, copy in self._copies:
            writes = version_of(tensor) != reading.version
            if writes:
                _writers.add(owner)
            if writes or copy.nbytes <= _SMALL:
                share(tensor, reading.version, copy)
        for owner in self._values:
            _seen.add(owner)
        self._copies.clear()

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Let a replay find what the forward found, and put back what stands there now."""
        changed = [(owner, name) for owner in self._values for name in self._changed(owner)]
        now = [(owner, name, name in vars(owner), vars(owner).get(name)) for owner, name in changed]
        try:
            for owner, name in changed:
                # Each replay has containers of its own.
                value = _apart(self._values[owner].get(name), self._as_read)
                _put(owner, name, name in self._values[owner], value)
            yield
        finally:
            for owner, name, is_there, value in now:
                _put(owner, name, is_there, value)

    def _changed(self, owner: nn.Module) -> list[str]:
        before, now = self._values[owner], attributes_of(owner)
        names = list(before) if before.keys() == now.keys() else list(before | now)
        return [n for n in names if n not in before or n not in now or not self._is_same(before[n], now[n])]

    def _is_same(self, before: Any, now: Any) -> bool:
        if before is now:
            return not _is_followed(before) or self._readings[id(before)].is_current
        if type(before) is not type(now):
            return False
        match before:
            case bool() | int() | float() | complex() | str() | bytes() | set():
                return bool(before == now)
            case dict() if type(before) is dict:
                pairs = zip(before.items(), now.items(), strict=False)
                return len(before) == len(now) and all(a == b and self._is_same(x, y) for (a, x), (b, y) in pairs)
            case list() | tuple() if type(before) in _CONTAINERS:
                return len(before) == len(now) and all(map(self._is_same, before, now))
        return False

    def _read(self, owner: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
        """Notes what a tensor among the attributes of ``owner`` holds."""

        def read(tensor: torch.Tensor) -> torch.Tensor:
            reading = self._readings[id(tensor)] = reading_of(tensor)
            # Who has written large tensors may do so again; before the first forward nobody knows.
            if tensor.nbytes <= _SMALL or owner in _writers or owner not in _seen:
                self._copies.append((owner, tensor, reading, copied(tensor)))
            return tensor

        return read

    def _as_read(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._readings[id(tensor)].as_read(tensor)


def attributes_of(module: nn.Module) -> dict[str, Any]:
    """The attributes of a module that its forward may read, and somebody set."""
    return {n: v for n, v in vars(module).items() if n not in _NOBODY_READS and not n.startswith("ds_")}


def _is_followed(value: Any) -> bool:
    """Whether it is a tensor that somebody may write between a forward and its replay: no weight, no subclass.

    A subclass may have no values, and a trace leaves such tensors behind where one module sets another's attribute.
    """
    return type(value) in (torch.Tensor, nn.Buffer)


def _put(owner: nn.Module, name: str, is_there: bool, value: Any) -> None:
    if is_there:
        vars(owner)[name] = value
    else:
        vars(owner).pop(name, None)


def _apart(value: Any, tensor: Callable[[torch.Tensor], torch.Tensor], depth: int = 0) -> Any:
    """A value whose containers nobody else has, with its tensors mapped by ``tensor``."""
    if _is_followed(value):
        return tensor(value)
    if type(value) not in _CONTAINERS or depth == DEEPEST or len(value) > MOST_ITEMS:
        return value
    if isinstance(value, dict):
        return {key: _apart(item, tensor, depth + 1) for key, item in value.items()}
    return type(value)(_apart(item, tensor, depth + 1) for item in value)
