"""Ctrl-C while a layer is traced waits for the trace's end, a second at most.

Torch calls Python from C++ for fake tensors and symbolic sizes (torch/csrc/utils/python_symnode.h). An interrupt that
was raised in there has ended the process by SIGABRT instead (`python -m tests.faults --only signals`).
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


@contextmanager
def interrupts_after() -> Iterator[None]:
    """Inside, an interrupt from the keyboard is noted; it is handled as ever when the block ends."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield  # Python runs handlers in the main thread alone
        return
    noted: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: noted.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if noted:
            handler(*noted[0])
