"""Copies on a side stream, ordered by events or not."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import torch

from hf_ckpt.engine.offloading.pinned import host_memory, pin, unpin

from ..counters import order_errors
from ..touched import Touched

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 64 << 20


def _read_before_copied(side: torch.cuda.Stream, host: torch.Tensor) -> None:
    device = torch.empty(SIZE, dtype=torch.uint8, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        device.copy_(host, non_blocking=True)
    device.add(1)


def _read_after_copied(side: torch.cuda.Stream, host: torch.Tensor) -> None:
    device = torch.empty(SIZE, dtype=torch.uint8, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        device.copy_(host, non_blocking=True)
    torch.cuda.current_stream().wait_event(side.record_event())
    device.add(1)


def _copied_before_made(side: torch.cuda.Stream, host: torch.Tensor) -> None:
    device = torch.ones(SIZE, dtype=torch.uint8, device="cuda")
    with torch.cuda.stream(side):
        host.copy_(device, non_blocking=True)


def _used_again_under_a_copy(side: torch.cuda.Stream, host: torch.Tensor) -> None:
    device = torch.ones(SIZE, dtype=torch.uint8, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        host.copy_(device, non_blocking=True)
    del device
    torch.ones(SIZE, dtype=torch.uint8, device="cuda")


def _used_again_after_record_stream(side: torch.cuda.Stream, host: torch.Tensor) -> None:
    device = torch.ones(SIZE, dtype=torch.uint8, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        host.copy_(device, non_blocking=True)
    device.record_stream(side)
    del device
    torch.ones(SIZE, dtype=torch.uint8, device="cuda")


def _unpinned_under_a_copy(side: torch.cuda.Stream, host: torch.Tensor) -> None:
    _copy_to_pinned_pages(side, wait=False)


def _unpinned_after_a_copy(side: torch.cuda.Stream, host: torch.Tensor) -> None:
    _copy_to_pinned_pages(side, wait=True)


def _copy_to_pinned_pages(side: torch.cuda.Stream, *, wait: bool) -> None:
    cuda, pages = torch.device("cuda", 0), host_memory(SIZE)
    assert pin(pages, cuda)
    device = torch.ones(SIZE, dtype=torch.uint8, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        pages.copy_(device, non_blocking=True)
    if wait:
        side.synchronize()
    unpin(pages, cuda)


CASES: dict[str, Callable[[torch.cuda.Stream, torch.Tensor], None]] = {
    "read before it is copied": _read_before_copied,
    "read after it is copied": _read_after_copied,
    "copied before it is made": _copied_before_made,
    "used again under a copy": _used_again_under_a_copy,
    "used again after record_stream": _used_again_after_record_stream,
    "unpinned under a copy": _unpinned_under_a_copy,
    "unpinned after a copy": _unpinned_after_a_copy,
}


def main(arguments: list[str]) -> dict[str, Any]:
    """The errors of order that every case has."""
    side, host, found = torch.cuda.Stream(), torch.empty(SIZE, dtype=torch.uint8, pin_memory=True), {}
    for name, case in CASES.items():
        torch.cuda.synchronize()
        gc.collect()
        before = len(order_errors())
        with Touched():
            case(side, host)
        found[name] = order_errors()[before:]
    return found
