"""Fills the card until torch runs out of memory."""

from __future__ import annotations

from typing import Any

import torch

GIB = 1 << 30


def main(arguments: list[str]) -> dict[str, Any]:
    """What the card says of itself, and how many blocks of 1 GiB it gives."""
    free, total = torch.cuda.mem_get_info()
    blocks, message = [], ""
    try:
        while len(blocks) < 1000:
            blocks.append(torch.empty(GIB, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError as error:
        message = str(error)
    count, full = len(blocks), torch.cuda.mem_get_info()[0]
    blocks.clear()
    torch.cuda.empty_cache()
    return {
        "name": torch.cuda.get_device_name(),
        "capability": torch.cuda.get_device_capability(),
        "free": free,
        "total": total,
        "blocks": count,
        "free_when_full": full,
        "free_again": torch.cuda.mem_get_info()[0],
        "message": message,
    }
