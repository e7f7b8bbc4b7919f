"""The tests' side of ``zygote.py``."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 300
_ROOT = Path(__file__).parents[2]
#: As a user has it, on the CPU.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "TRANSFORMERS_VERBOSITY": "warning"}


@dataclass(frozen=True, slots=True)
class Run:
    """What one process did."""

    status: int
    stdout: str
    stderr: str


class Forked:
    """A process with ``module`` of this folder loaded. A script gets its own fork, and each of two ranks one."""

    def __init__(self, module: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.zygote", f"{__package__}.{module}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | _ENVIRONMENT,
            cwd=_ROOT,
        )

    def run(self, *argv: str | Path, folder: Path, stdin: str = "", **environment: str) -> Run:
        """Run a script (or ``-m`` and a module) with ``folder`` as the current folder."""
        (run,) = self._answer(argv, folder, stdin, [environment])
        return run

    def run_ranks(self, *argv: str | Path, folder: Path, world: int = 2) -> list[Run]:
        """The same under the environment that torchrun gives to ``world`` ranks."""
        common = {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _port()}
        ranks = [common | {"RANK": rank, "LOCAL_RANK": rank} for rank in range(world)]
        return self._answer(argv, folder, "", [{name: str(value) for name, value in rank.items()} for rank in ranks])

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _answer(self, argv: tuple[str | Path, ...], folder: Path, stdin: str, ranks: list[dict[str, str]]) -> list[Run]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        environments = [os.environ | _ENVIRONMENT | rank for rank in ranks]
        request = {"argv": [*map(str, argv)], "folder": str(folder), "stdin": stdin, "ranks": environments}
        self._process.stdin.write(f"{json.dumps(request)}\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], TIMEOUT_S)
        assert ready, f"{argv} ran for more than {TIMEOUT_S} s"
        return [Run(**answer) for answer in json.loads(self._process.stdout.readline())]


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
