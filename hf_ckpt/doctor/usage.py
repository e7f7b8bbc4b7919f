"""What a device's memory is used for, as far as its allocator tells."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..measuring.memory_limit import memory_limit
from ..planner.memory.device_memory import device_memory


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes of a device at one moment.

    Attributes:
        total: What there is; None where nobody says.
        live: What tensors of this process take.
        unused: What the allocator holds beside that, in blocks that fit nothing that was asked for.
        others: The rest that is not free: other processes, contexts, libraries.
    """

    total: int | None
    live: int
    unused: int = 0
    others: int = 0

    @property
    def free(self) -> int | None:
        """What nobody uses, in blocks of the allocator or out of them; None where no total is known."""
        return None if self.total is None else self.total - self.live - self.others


def read_usage(device: torch.device) -> Usage:
    """What is used of ``device`` now; on a CPU without a limit, of the process as a whole."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        live, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
        return Usage(total, live, reserved - live, total - free - reserved)
    memory = device_memory(device)
    return Usage(memory.total, memory.used)


def live_bytes(device: torch.device) -> int | None:
    """Bytes of live tensors, cheap enough for every step; None on a CPU without a limit, which counts none."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    limit = memory_limit(device)
    return None if limit is None else limit.live_bytes


def peak_bytes(device: torch.device) -> int | None:
    """The most bytes of tensors that were alive at once; None where nobody counts."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    limit = memory_limit(device)
    return None if limit is None else limit.peak_bytes
