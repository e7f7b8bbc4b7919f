"""The benchmark for real cards, rehearsed: whether every part of it comes to an answer."""

from __future__ import annotations

from typing import Any

from tests.benchmarks import gpu

from .. import stand_ins


def main(arguments: list[str]) -> dict[str, Any]:
    """Run it with these arguments; returns its exit code."""
    stand_ins.install()
    return {"exit": gpu.main(["--rounds", "1", *arguments])}
