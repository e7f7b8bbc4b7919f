"""The options of a row, as `hf-ckpt plan` reads them."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

_FLAGS = ("ddp", "fsdp", "master", "load-in-4bit", "prepare-kbit")
_TEXTS = ("gpu", "policy", "attention", "autocast")
_NUMBERS = ("gpus", "batch", "length", "lora")


def options_of(text: str) -> dict[str, Any]:
    """By name; None or 0 where a row does not say. Raises SystemExit for an option that no row had."""
    parser = argparse.ArgumentParser()
    for name in _FLAGS:
        parser.add_argument(f"--{name}", action="store_true")
    for name in _TEXTS:
        parser.add_argument(f"--{name}")
    for name in _NUMBERS:
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--lora-target", action="append")
    parser.add_argument("--lora-dropout", type=float, default=0.0)
    return vars(parser.parse_args(shlex.split(text)))
