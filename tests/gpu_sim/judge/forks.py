"""Runs groups of cells, each in a forked process with a card of its own: torch is imported once for all of them.

``python -m tests.gpu_sim.judge.forks`` on a simulated card reads :class:`Job` from stdin, a line of JSON each, and writes
a line on stdout when one ended. CUDA is not initialised before the fork, so a process meets its card, with its
compute capability, as one that was started there.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import json
import os
import sys
import time
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import accelerate  # noqa: F401  # peft imports it
import torch

import hf_ckpt.engine.replay  # noqa: F401  # `hf_ckpt` imports it when a policy is applied

from .on_card import run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_RUNTIME = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class Job:
    """A subject in a setup on a card; the card's variables, and the file that keeps the cells.

    The file is there once all of them are; until then what the process says is in a `.log` beside it.
    """

    subject: str
    setup: str
    labels: list[str]
    environment: Mapping[str, str]
    kept: str


def forked(environment: Mapping[str, str], call: Callable[[], None]) -> str:
    """Call it in a process of its own, on the card of these variables; empty, or how that ended."""
    child = os.fork()
    if not child:
        try:
            _take_card(environment)
            call()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return f"ended with {code}" if code else ""


def _take_card(environment: Mapping[str, str]) -> None:
    os.environ.update(environment)
    _RUNTIME.sim_read_card()
    allocator = environment.get("PYTORCH_CUDA_ALLOC_CONF")
    if allocator:  # torch reads the variable when it is loaded
        torch._C._accelerator_setAllocatorSettings(allocator)
    gc.freeze()  # what all processes imported is no garbage


def _keep_cells(job: Job) -> None:
    kept = Path(job.kept)
    kept.parent.mkdir(parents=True, exist_ok=True)
    unfinished, said = kept.with_suffix(".partial"), kept.with_suffix(".log")
    with unfinished.open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # A run beside this one is at it.
        file.truncate(0)
        with said.open("wb") as log:  # CUTLASS alone writes 50,000 lines about a card that has no values
            os.dup2(log.fileno(), sys.stdout.fileno())
            os.dup2(log.fileno(), sys.stderr.fileno())
        for cell in run(job.subject, job.setup, job.labels):
            print(json.dumps(cell), file=file)
        file.flush()
        unfinished.replace(kept)
    said.unlink()


def main() -> None:
    """Run what stands on stdin."""
    for line in sys.stdin:
        job, start = Job(**json.loads(line)), time.monotonic()
        error = forked(job.environment, partial(_keep_cells, job))
        print(json.dumps({"kept": job.kept, "error": error, "seconds": time.monotonic() - start}), flush=True)


if __name__ == "__main__":
    main()
