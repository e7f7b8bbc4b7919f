"""What a benchmark measured, with the command, the machine and the versions that it was measured with, as JSON."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hf_ckpt.planner.calibration.calibrate import device_name

if TYPE_CHECKING:
    import argparse

PACKAGES = ("torch", "transformers", "accelerate", "peft", "scipy", "torch_remat", "bitsandbytes", "flash_attn")


def add_out(parser: argparse.ArgumentParser) -> None:
    """Let the caller name the file that :func:`record` writes."""
    parser.add_argument("--out", type=Path, help="also write the result here, e.g. tests/benchmarks/results/NAME.json")


def record(result: dict[str, Any], out: Path | None, device: torch.device) -> None:
    """Print ``result``, and write it to ``out`` together with what it depends on."""
    print(json.dumps(result, indent=2))
    if out is None:
        return
    found = {
        "command": command(),
        "device": device_name(device),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "versions": {"python": platform.python_version(), **versions()},
        "result": result,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def command() -> str:
    """The command that runs this process's benchmark from the top of the repository."""
    module = Path(sys.argv[0]).stem
    return " ".join(["python -m tests.benchmarks." + module, *sys.argv[1:]])


def versions() -> dict[str, str]:
    """Versions of what is installed of :data:`PACKAGES`."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
