"""Redraw: random numbers are drawn again in backward, from the random state that the forward drew them from.

The state is that of the default generator of a device: about 5 kB on the CPU, two host integers on CUDA (reading and
writing it synchronises nothing, see CUDAGeneratorImpl.cpp). The layer runs untouched, so a state can only be taken when
the layer is entered, and when autograd saves a tensor. One state serves all draws of a run, which are repeated in
order. Afterwards the generators are put back to where they stood.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Set

    from ..tracing.ir import Trace

#: Devices whose generators are read and written by ``torch.get_device_module(device).get_rng_state(device)``.
_DEVICE_MODULES = frozenset({"cuda", "xpu"})
ENTRY = -1


@dataclass(frozen=True, slots=True)
class DrawRun:
    """Draws of one device in a row, repeated from one state: that before op ``first``, taken at pack ``anchor``."""

    device: torch.device
    first: int
    anchor: int


def can_redraw(device: torch.device) -> bool:
    """Whether the random state of this kind of device can be taken and set."""
    return device.type == "cpu" or device.type in _DEVICE_MODULES


def draw_runs(trace: Trace, ops: Set[int]) -> tuple[DrawRun, ...]:
    """The runs of draws among ``ops``, in program order. A draw without an anchor must come with the one before it."""
    runs = []
    for index in sorted(ops):
        draw = trace.ops[index].draw
        if draw is not None and draw.previous not in ops:
            assert draw.anchor is not None
            runs.append(DrawRun(draw.device, index, draw.anchor))
    return tuple(runs)


def random_state(device: torch.device) -> torch.Tensor:
    """The state of the device's default generator, uint8 in host memory."""
    if device.type == "cpu":
        return torch.get_rng_state()
    state: torch.Tensor = torch.get_device_module(device).get_rng_state(device)
    return state


def set_random_state(device: torch.device, state: torch.Tensor) -> None:
    """Let the device's default generator go on from ``state``."""
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        torch.get_device_module(device).set_rng_state(state, device)


@contextlib.contextmanager
def random_state_kept(devices: Iterable[torch.device]) -> Iterator[None]:
    """Put the generators of ``devices`` back to where they stand now."""
    states = [(device, random_state(device)) for device in devices]
    try:
        yield
    finally:
        for device, state in states:
            set_random_state(device, state)
