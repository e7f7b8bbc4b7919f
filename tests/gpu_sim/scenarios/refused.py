"""Pages that the driver refuses to pin, and a signal while it pins."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

import torch

from hf_ckpt.engine.offloading import host_memory as module
from hf_ckpt.engine.offloading.host_memory import HostMemory
from hf_ckpt.engine.offloading.pinned import host_memory, pin, unpin

from .. import stand_ins
from ..counters import read

SIZE = 64 << 20
CUDA = torch.device("cuda", 0)


def main(arguments: list[str]) -> dict[str, Any]:
    """What pinning twice says, whether kernels run after a refusal, and what stays pinned after Ctrl-C."""
    stand_ins.install()
    torch.ones(1, device=CUDA)
    pages = host_memory(SIZE)
    found: dict[str, Any] = {"pinned": [pin(pages, CUDA), pin(pages, CUDA)]}
    found["kernel after pin"] = _kernel()
    unpin(pages, CUDA)
    unpin(pages, CUDA)
    found["kernel after unpin"] = _kernel()
    found["left by Ctrl-C"] = _interrupted(HostMemory(CUDA))
    return found


def _kernel() -> str:
    try:
        torch.ones(1, device=CUDA)
    except RuntimeError as error:
        return str(error)
    return "runs"


def _interrupted(memory: HostMemory) -> int:
    def pin_and_interrupt(pages: torch.Tensor, device: torch.device) -> bool:
        done = pin(pages, device)
        os.kill(os.getpid(), signal.SIGINT)
        return done

    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background job ignores it, and so do its children
    module.pin = pin_and_interrupt
    with contextlib.suppress(KeyboardInterrupt):
        memory.take(SIZE)
    module.pin = pin
    return read().pinned
