"""How much of the host's memory one rank may take."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import distributed as dist

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
#: Files of a cgroup: its limit, what is used of it, and where it says what of that is cache that can go.
_V2 = ("memory.max", "memory.current", "memory.stat", "inactive_file")
_V1 = ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file")
#: Where launchers say how many ranks they started on this host.
_LAUNCHERS = ("LOCAL_WORLD_SIZE", "LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")


def free_bytes(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int | None:
    """Bytes that the host can still give to this process; None where the system does not say.

    The least of what the system has available and of what its cgroup (v2, v1) leaves.
    """
    found = [_available(meminfo), *(_left(cgroup, *names) for names in (_V2, _V1))]
    return min((nbytes for nbytes in found if nbytes is not None), default=None)


def local_ranks() -> int:
    """How many ranks train on this host, and share its memory."""
    for name in _LAUNCHERS:
        if (text := os.environ.get(name, "")).isdigit() and int(text):
            return int(text)
    if dist.is_available() and dist.is_initialized():
        return max(1, min(dist.get_world_size(), torch.cuda.device_count()))
    return 1


def rank_bytes() -> int | None:
    """This rank's part of :func:`free_bytes`."""
    free = free_bytes()
    return None if free is None else free // local_ranks()


def _available(meminfo: Path) -> int | None:
    kib = _field(meminfo, "MemAvailable:")
    return None if kib is None else 1024 * kib


def _left(cgroup: Path, limit: str, used: str, stat: str, cache: str) -> int | None:
    bound, taken = _number(cgroup / limit), _number(cgroup / used)
    if bound is None or taken is None:
        return None
    return max(0, bound - max(0, taken - (_field(cgroup / stat, cache) or 0)))


def _number(file: Path) -> int | None:
    """The number in a file of a cgroup; ``max`` and v1's "no limit" (near 2**63) are none."""
    text = _text(file).strip()
    return int(text) if text.isdigit() and int(text) < 1 << 60 else None


def _field(file: Path, name: str) -> int | None:
    lines = (line.split() for line in _text(file).splitlines())
    return next((int(words[1]) for words in lines if len(words) > 1 and words[0] == name), None)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except OSError:
        return ""
