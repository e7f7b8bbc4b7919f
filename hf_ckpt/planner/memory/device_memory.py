"""What memory there is: of an accelerator, and on CPU what the process may use."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from ...measuring.memory_limit import memory_limit
from ..budget import DeviceMemory

try:
    import resource
except ImportError:  # Windows: neither cgroups nor rlimits
    resource = None  # type: ignore[assignment]

_CGROUP = Path("/sys/fs/cgroup")


def device_memory(device: torch.device) -> DeviceMemory:
    """Total and used bytes of ``device``; on CPU of this process (``total`` None when nobody says)."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        stats = torch.cuda.memory_stats(device)
        cached = stats.get("reserved_bytes.all.current", 0) - stats.get("allocated_bytes.all.current", 0)
        refused = stats.get("num_alloc_retries", 0)
        return DeviceMemory(total, total - free - cached, total - free, refused)
    if (bound := memory_limit(device)) is not None:
        return DeviceMemory(bound.nbytes, bound.live_bytes)
    limits = [limit for limit in (process_limit(), physical_memory()) if limit is not None]
    return DeviceMemory(min(limits, default=None), resident_bytes())


def physical_memory() -> int | None:
    """Bytes of memory in this machine; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def process_limit(cgroup: Path = _CGROUP) -> int | None:
    """The smallest of the cgroup's (v2, v1) and RLIMIT_AS's bounds in bytes; None when there is none."""
    limits = [_limit_in(cgroup / "memory.max"), _limit_in(cgroup / "memory" / "memory.limit_in_bytes")]
    if resource is not None:
        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        limits.append(None if soft == resource.RLIM_INFINITY else soft)
    return min((limit for limit in limits if limit is not None), default=None)


def _limit_in(file: Path) -> int | None:
    """The number in a cgroup file; ``max`` and v1's "no limit" (near 2**63) are none."""
    try:
        text = file.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() and int(text) < 1 << 60 else None


def resident_bytes() -> int:
    """Bytes of this process that are in memory now; 0 where the system does not say (no /proc)."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
