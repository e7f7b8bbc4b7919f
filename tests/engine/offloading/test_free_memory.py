"""What a rank may take of its host, on files as Linux writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hf_ckpt.engine.offloading import free_memory
from hf_ckpt.engine.offloading.free_memory import free_bytes, local_ranks, rank_bytes

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30


def host(folder: Path, **cgroup: str) -> int | None:
    """Free bytes of a host with 8 GiB available and a cgroup with these files."""
    (folder / "meminfo").write_text(f"MemTotal:  99999999 kB\nMemAvailable:   {8 << 20} kB\n")
    for name, text in cgroup.items():
        (folder / name.replace("_", ".", 1)).write_text(text)
    return free_bytes(folder / "meminfo", folder)


def test_free_is_what_the_system_has_available(tmp_path: Path) -> None:
    assert host(tmp_path) == 8 * GIB
    assert free_bytes(tmp_path / "none", tmp_path / "none") is None


def test_a_cgroup_leaves_its_limit_less_what_is_used_but_for_cache(tmp_path: Path) -> None:
    files = {"memory_current": f"{3 * GIB}\n", "memory_stat": f"anon 1\ninactive_file {GIB}\n"}
    assert host(tmp_path, memory_max=f"{4 * GIB}\n", **files) == 2 * GIB
    assert host(tmp_path, memory_max="max\n", **files) == 8 * GIB


def test_a_cgroup_of_the_first_version_counts_too(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    for name, text in (("limit_in_bytes", 4 * GIB), ("usage_in_bytes", GIB), ("stat", "total_inactive_file 0")):
        (tmp_path / "memory" / f"memory.{name}").write_text(f"{text}\n")
    assert host(tmp_path) == 3 * GIB


@pytest.mark.parametrize("name", ["LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"])
def test_ranks_of_a_host_share_its_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for other in free_memory._LAUNCHERS:
        monkeypatch.delenv(other, raising=False)
    assert local_ranks() == 1
    monkeypatch.setenv(name, "8")
    monkeypatch.setattr(free_memory, "free_bytes", lambda: 80 * GIB)
    assert rank_bytes() == 10 * GIB
