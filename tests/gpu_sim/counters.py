"""What the simulated card counted. Only in a process that :mod:`.simulated` started."""

from __future__ import annotations

import ctypes
from typing import Any, Self

_RUNTIME = ctypes.CDLL(None)
_TIMES = ("now", "busy", "waited")
_COUNTS = (
    "launches", "copies", "synchronisations", "device_allocations", "host_allocations",
    "used", "pinned", "pinned_peak", "to_host", "to_device", "order_errors",
)  # fmt: skip


class Counters(ctypes.Structure):
    """``struct counters`` of runtime/sim.h.

    ``now`` is the host's simulated time, ``busy`` the seconds of work that the compute streams got, ``waited`` the
    seconds that the host waited for the card. ``device_allocations`` are cudaMalloc and cuMemCreate,
    ``synchronisations`` calls for which the host waits. ``used`` and ``pinned`` are bytes now, ``to_host`` and
    ``to_device`` bytes copied.
    """

    _fields_ = [(name, ctypes.c_double) for name in _TIMES] + [(name, ctypes.c_long) for name in _COUNTS]

    now: float
    busy: float
    waited: float
    launches: int
    copies: int
    synchronisations: int
    device_allocations: int
    host_allocations: int
    used: int
    pinned: int
    pinned_peak: int
    to_host: int
    to_device: int
    order_errors: int


def read() -> Counters:
    """The counters now."""
    found = Counters()
    _RUNTIME.sim_counters(ctypes.byref(found))
    return found


class Span:
    """``with Span() as span: ...``, then its fields are what was counted inside; peaks are those of the inside."""

    def __enter__(self) -> Self:
        _RUNTIME.sim_reset_peaks()
        self._before = read()
        return self

    def __exit__(self, *error: object) -> None:
        after = read()
        for name in (*_TIMES, *_COUNTS):
            value = getattr(after, name)
            setattr(self, name, value if name.endswith("_peak") else value - getattr(self._before, name))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name}: the span has not ended")


def order_errors() -> list[str]:
    """What the watch over the order of streams found (:mod:`.touched`)."""
    _RUNTIME.sim_order_errors.restype = ctypes.c_char_p
    text: bytes = _RUNTIME.sim_order_errors()
    return text.decode().splitlines()
