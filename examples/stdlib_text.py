"""Real text that every Python has: the sources of its own standard library, as byte-level tokens."""

from __future__ import annotations

import sysconfig
from pathlib import Path

#: One token per byte value.
VOCABULARY = 256


def stdlib_text(size: int) -> bytes:
    """The first ``size`` bytes of the standard library's modules, in the order of their names."""
    text = bytearray()
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text += path.read_bytes()
        if len(text) >= size:
            return bytes(text[:size])
    raise ValueError(f"the standard library has only {len(text)} bytes of top-level modules, {size} were asked for")


def byte_blocks(count: int, length: int) -> list[dict[str, list[int]]]:
    """``count`` training examples of ``length`` tokens each, as Trainer takes them."""
    text = stdlib_text(count * length)
    rows = [list(text[start : start + length]) for start in range(0, len(text), length)]
    return [{"input_ids": row, "labels": row} for row in rows]
