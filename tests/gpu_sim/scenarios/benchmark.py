"""A benchmark of :mod:`tests.benchmarks`, rehearsed: its exit code, and the JSON that it writes."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .. import stand_ins, varlen


def main(arguments: list[str]) -> dict[str, Any]:
    """``arguments`` are the module's name and its own arguments."""
    stand_ins.install()
    varlen.install()
    name, *rest = arguments
    with TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        ended = importlib.import_module(f"tests.benchmarks.{name}").main([*rest, "--out", str(out)])
        return {"exit": ended, **json.loads(out.read_text(encoding="utf-8"))}
