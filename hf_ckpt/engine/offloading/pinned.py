"""Host memory by the page, pinned as it is.

torch's own pinned memory comes in powers of two, and 344 MiB take 512 (CachingHostAllocator.h, ``PowerOf2Ceil``).
"""

from __future__ import annotations

import contextlib
import mmap

import torch

#: The driver pins whole pages.
PAGE = mmap.PAGESIZE


def host_memory(nbytes: int) -> torch.Tensor:
    """A uint8 tensor of ``nbytes`` bytes, a multiple of :data:`PAGE`, in pages of its own.

    Raises OSError or MemoryError when the system refuses.
    """
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return torch.frombuffer(mmap.mmap(-1, nbytes), dtype=torch.uint8)
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_DONTFORK"):  # a fork copies pinned pages at once, for every worker of a DataLoader
        memory.madvise(mmap.MADV_DONTFORK)
    return torch.frombuffer(memory, dtype=torch.uint8)


def pin(memory: torch.Tensor, device: torch.device) -> bool:
    """Let ``device`` copy to and from ``memory`` while the host goes on; False when the driver refuses."""
    with torch.cuda.device(device):
        error = torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), memory.numel(), 0)  # type: ignore[no-untyped-call]
        return _succeeded(error, device)


def unpin(memory: torch.Tensor, device: torch.device) -> None:
    """Take :func:`pin` back. No copy may be under way."""
    with torch.cuda.device(device):
        error = torch.cuda.cudart().cudaHostUnregister(memory.data_ptr())  # type: ignore[no-untyped-call]
        _succeeded(error, device)


def _succeeded(error: object, device: torch.device) -> bool:
    """Whether the runtime did it. Each kernel of torch asks for the last error: this one takes it away."""
    if int(error) == 0:  # type: ignore[call-overload]
        return True
    with contextlib.suppress(RuntimeError):
        torch.ones(1, device=device)
    return False
