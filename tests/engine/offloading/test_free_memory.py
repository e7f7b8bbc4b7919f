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
    return free_bytes(folder / "meminfo", folder, folder / "mine")


def test_free_is_what_the_system_has_available(tmp_path: Path) -> None:
    assert host(tmp_path) == 8 * GIB
    assert free_bytes(*[tmp_path / "none"] * 3) is None


def test_a_cgroup_leaves_its_limit_less_what_is_used_but_for_cache(tmp_path: Path) -> None:
    files = {"memory_current": f"{3 * GIB}\n", "memory_stat": f"anon 1\ninactive_file {GIB}\n"}
    assert host(tmp_path, memory_max=f"{4 * GIB}\n", **files) == 2 * GIB
    assert host(tmp_path, memory_max="max\n", **files) == 8 * GIB


def test_a_cgroup_of_the_first_version_counts_too(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    for name, text in (("limit_in_bytes", 4 * GIB), ("usage_in_bytes", GIB), ("stat", "total_inactive_file 0")):
        (tmp_path / "memory" / f"memory.{name}").write_text(f"{text}\n")
    assert host(tmp_path) == 3 * GIB


@pytest.mark.parametrize(
    ("line", "below", "limit", "used"),
    [
        ("0::/job/step/task", "", "memory.max", "memory.current"),
        ("4:cpu,memory:/job/step/task\n0::/", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ],
)
def test_the_cgroup_that_leaves_least_counts(line: str, below: str, limit: str, used: str, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text(f"{line}\n")
    for path, nbytes in (("job", 6), ("job/step", 3), ("job/step/task", 5), ("other", 1)):
        (tmp_path / below / path).mkdir(parents=True)
        (tmp_path / below / path / limit).write_text(f"{nbytes * GIB}\n")
        (tmp_path / below / path / used).write_text(f"{GIB}\n")
    assert host(tmp_path) == 2 * GIB
    (tmp_path / "mine").write_text(line.replace("/job/step/task", "/../other"))
    assert host(tmp_path) == 8 * GIB, "a cgroup that the container does not see"


@pytest.fixture
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*free_memory._LAUNCHERS, "SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_launcher")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("LOCAL_WORLD_SIZE", "8"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "8"),
        ("MV2_COMM_WORLD_LOCAL_SIZE", "8"),
        ("SLURM_STEP_TASKS_PER_NODE", "8"),
        ("SLURM_STEP_TASKS_PER_NODE", "4,8(x3)"),
    ],
)
def test_ranks_of_a_host_share_its_memory(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_ranks() == 1
    monkeypatch.setenv(name, text)
    monkeypatch.setattr(free_memory, "free_bytes", lambda: 80 * GIB)
    assert rank_bytes() == 8 * GIB, "80 %"
    assert rank_bytes(10 * GIB) == 16 * GIB, "with what it has"


@pytest.mark.usefixtures("no_launcher")
def test_tasks_of_a_slurm_job_are_ranks_once_they_train_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "8")
    assert local_ranks() == 1, "a script of sbatch that starts no task"
    monkeypatch.setattr(free_memory.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(free_memory.dist, "get_world_size", lambda: 16)
    assert local_ranks() == 8
