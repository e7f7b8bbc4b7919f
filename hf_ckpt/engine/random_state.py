"""The random state of a device's default generator, and of the generators that torch does not own.

It takes about 5 kB on the CPU and two host integers on CUDA; reading and writing it synchronises nothing
(aten/src/ATen/cuda/CUDAGeneratorImpl.cpp).
"""

from __future__ import annotations

import contextlib
import random
import sys
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: Devices whose generators are read and written by ``torch.get_device_module(device).get_rng_state(device)``.
_DEVICE_MODULES = frozenset({"cuda", "xpu"})


def can_redraw(device: torch.device) -> bool:
    """Whether the random state of this kind of device can be taken and set."""
    return device.type == "cpu" or device.type in _DEVICE_MODULES


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


def foreign_random_state() -> dict[str, Any]:
    """The state of the generators that torch does not own, Python's and NumPy's; equal states compare equal."""
    states: dict[str, Any] = {"python": random.getstate()}
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        states["numpy"] = (kind, keys.tolist(), *rest)
    return states


def set_foreign_random_state(states: Mapping[str, Any]) -> None:
    """Let these generators go on from ``states``."""
    random.setstate(states["python"])
    if "numpy" in states:
        sys.modules["numpy"].random.set_state(states["numpy"])


def have_drawn(since: Mapping[str, Any]) -> bool:
    """Whether a generator that torch does not own has been drawn from since this state was taken."""
    now = foreign_random_state()
    return any(now[name] != state for name, state in since.items())


@contextlib.contextmanager
def foreign_random_state_kept() -> Iterator[None]:
    """Put the generators that torch does not own back to where they stand now."""
    states = foreign_random_state()
    try:
        yield
    finally:
        set_foreign_random_state(states)
