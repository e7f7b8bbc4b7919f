"""The tests' side of ``zygote.py``."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .place import alone_in

TIMEOUT_S = 300
_ROOT = Path(__file__).parents[2]
#: As a user has it, on the CPU.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "TRANSFORMERS_VERBOSITY": "warning"}
_PLACE = Path(tempfile.gettempdir(), f"hf-ckpt-forks-{os.getuid()}")
#: The same in all workers of one test run.
_TEST_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))


@dataclass(frozen=True, slots=True)
class Run:
    """What one process did."""

    status: int
    stdout: str
    stderr: str


class Forked:
    """A process with ``module`` of this folder loaded. A script gets its own fork, and each of two ranks one.

    The workers of one test run share the process: who needs it first starts it.
    """

    def __init__(self, module: str) -> None:
        _PLACE.mkdir(mode=0o700, exist_ok=True)
        self._connection = _connected(_PLACE / f"{_TEST_RUN}-{module}", module)
        self._connection.settimeout(TIMEOUT_S)
        self._answers = self._connection.makefile()

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
        """Let go of the process, which ends when nobody is left."""
        self._answers.close()
        self._connection.close()

    def _answer(self, argv: tuple[str | Path, ...], folder: Path, stdin: str, ranks: list[dict[str, str]]) -> list[Run]:
        environments = [os.environ | _ENVIRONMENT | rank for rank in ranks]
        request = {"argv": [*map(str, argv)], "folder": str(folder), "stdin": stdin, "ranks": environments}
        self._connection.sendall(f"{json.dumps(request)}\n".encode())
        try:
            answers = self._answers.readline()
        except TimeoutError as error:
            raise AssertionError(f"{argv} ran for more than {TIMEOUT_S} s") from error
        assert answers, f"the process that runs {argv} ended"
        return [Run(**answer) for answer in json.loads(answers)]


def _connected(path: Path, module: str) -> socket.socket:
    """A connection to the process that listens at ``path``, which is started if there is none."""
    connection = socket.socket(socket.AF_UNIX)
    with alone_in(path.parent):
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            path.unlink(missing_ok=True)
            _start(path, module)
            connection.connect(str(path))
    return connection


def _start(path: Path, module: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.zygote", str(listener.fileno()), f"{__package__}.{module}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=os.environ | _ENVIRONMENT,
            cwd=_ROOT,
            pass_fds=[listener.fileno()],
        )


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
