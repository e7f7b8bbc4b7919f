"""How much of the host's memory one rank may take."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import distributed as dist

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_MINE = Path("/proc/self/cgroup")
#: Where the cgroups of a version lie; files of each: its limit, what is used of it, and where it says what of that is
#: cache that can go.
_V2 = ("", "memory.max", "memory.current", "memory.stat", "inactive_file")
_V1 = ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat", "total_inactive_file")
#: Where launchers say how many ranks they started on this host.
_LAUNCHERS = (
    "LOCAL_WORLD_SIZE",
    "LOCAL_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
)
#: The share of this rank's part of the host's free memory that it may pin: other programs grow too.
SHARE = 0.8


def free_bytes(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP, mine: Path = _MINE) -> int | None:
    """Bytes that the host can still give to this process; None where the system does not say.

    The least of what the system has available and of what its cgroups (v2, v1), up to the root, leave.
    """
    found = [_available(meminfo)]
    for names, path in ((_V2, _path(mine, "")), (_V1, _path(mine, "memory"))):
        folder = cgroup / names[0]
        found += [_left(place, *names[1:]) for place in (folder, *_below(folder, path))]
    return min((nbytes for nbytes in found if nbytes is not None), default=None)


def local_ranks() -> int:
    """How many ranks train on this host, and share its memory."""
    for name in _LAUNCHERS:
        if (text := os.environ.get(name, "")).isdigit() and int(text):
            return int(text)
    step = _tasks("SLURM_STEP_TASKS_PER_NODE")  # srun's; the job's counts even where no task was started
    if dist.is_available() and dist.is_initialized():
        most = max(step, _tasks("SLURM_NTASKS_PER_NODE"), torch.cuda.device_count())
        return max(1, min(dist.get_world_size(), most))
    return max(1, step)


def rank_bytes(pinned: int = 0) -> int | None:
    """Bytes that this rank may pin; ``pinned`` of them it has already. None where the system does not say."""
    free = free_bytes()
    return None if free is None else int(SHARE * (free // local_ranks() + pinned))


def _tasks(name: str) -> int:
    """The most tasks of a node, of what Slurm writes: ``8``, or ``2(x3),1``."""
    counts = (part.partition("(")[0] for part in os.environ.get(name, "").split(","))
    return max((int(count) for count in counts if count.isdigit()), default=0)


def _path(mine: Path, controller: str) -> str:
    """The path of the process's cgroup; lines are ``4:cpu,memory:/path``, or ``0::/path`` for v2."""
    lines = (line.split(":", 2) for line in _text(mine).splitlines())
    return next((words[2] for words in lines if len(words) == 3 and controller in words[1].split(",")), "")


def _below(folder: Path, path: str) -> list[Path]:
    """The cgroup at ``path`` below ``folder``, and those that it lies in."""
    names = [name for name in path.split("/") if name]
    if ".." in names:  # outside of what this container sees
        return []
    return [folder.joinpath(*names[: depth + 1]) for depth in range(len(names))]


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
