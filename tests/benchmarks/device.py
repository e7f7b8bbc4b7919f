"""Where the benchmarks run: on the GPU that torch finds, else on one thread of the CPU.

    python -m tests.benchmarks.device

prints the folder for what is measured here, which is one of its own for each kind of GPU.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Without it cuBLAS is not deterministic; it is read when the first product runs (torch.use_deterministic_algorithms).
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def here() -> torch.device:
    """The device that the benchmarks run on."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def seconds(step: Callable[[], object], device: torch.device) -> float:
    """What a step takes: on a GPU wall clock until it has ended, on a CPU seconds of CPU.

    On one thread those are the time of the step, undisturbed by whatever else the machine does.
    """
    if device.type == "cpu":
        start = time.process_time()
        step()
        return time.process_time() - start
    torch.cuda.synchronize(device)
    start = time.perf_counter()
    step()
    torch.cuda.synchronize(device)
    return time.perf_counter() - start


@contextmanager
def deterministic() -> Iterator[None]:
    """Two equal steps have equal bits inside; a kernel that has no such form says so in a warning."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def results() -> str:
    """The folder for what is measured here, from the top of the repository."""
    device, base = here(), "tests/benchmarks/results"
    if device.type == "cpu":
        return base
    return f"{base}/{torch.cuda.get_device_name(device).lower().replace(' ', '-')}"


if __name__ == "__main__":
    print(results())
