"""How long `hf-ckpt plan` takes, and how much memory: LLaMA-7B, Mixtral-8x7B and Qwen3-8B at 128k tokens.

    python -m tests.benchmarks.plan_speed [--rounds 3] [--out FILE]

Whole processes on configs that are written here, so nothing is downloaded: seconds of wall clock, seconds of CPU (user
and system) and the largest resident set, medians of the rounds. `imports alone` is what torch and transformers take of
it before any of our code runs. The goal of the project is 5 s and 1 GiB on two idle cores; exits 1 when a row misses it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import torch
from transformers import LlamaConfig, MixtralConfig, Qwen3Config

from .record import add_out, record

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

GOAL = {"seconds": 5.0, "mebibytes": 1024.0}
IMPORTS = [sys.executable, "-c", "import torch, transformers.modeling_utils"]
QWEN3_8B = {
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 131072,
}
#: The config's defaults are LLaMA-7B's and Mixtral-8x7B's.
MODELS: dict[str, tuple[PreTrainedConfig, int]] = {
    "llama-7b": (LlamaConfig(), 2048),
    "mixtral-8x7b": (MixtralConfig(), 2048),
    "qwen3-8b": (Qwen3Config(**QWEN3_8B), 131072),
}


def plan(folder: Path, config: PreTrainedConfig, length: int) -> list[str]:
    """The command that plans for this model."""
    config.save_pretrained(folder)
    return [sys.executable, "-m", "hf_ckpt", "plan", "--model", str(folder), "--gpu", "h100", "--length", str(length)]


def run(command: list[str]) -> dict[str, float]:
    """Run a command in silence: its seconds, CPU seconds and largest resident set in MiB."""
    start = time.perf_counter()
    # An installed package has its bytecode.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {"HF_HUB_OFFLINE": "1"}
    files = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
    child = os.posix_spawn(command[0], command, environment, file_actions=files)
    _, status, usage = os.wait4(child, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):  # 1: nothing fits
        sys.exit(f"{' '.join(command)} failed")
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "cpu": usage.ru_utime + usage.ru_stime, "mebibytes": usage.ru_maxrss / 1024}


def rows(rounds: int) -> dict[str, dict[str, float]]:
    """The medians of every model's plan and of the imports alone, taken in turn."""
    with tempfile.TemporaryDirectory() as folder:
        commands = {name: plan(Path(folder) / name, *model) for name, model in MODELS.items()}
        commands["imports alone"] = IMPORTS
        taken = [{name: run(command) for name, command in commands.items()} for _ in range(rounds)]
    return {
        name: {unit: round(median(each[name][unit] for each in taken), 2) for unit in taken[0][name]}
        for name in commands
    }


def main() -> int:
    """Measure, print, and say whether the goal is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    add_out(parser)
    arguments = parser.parse_args()
    found = rows(arguments.rounds)
    record(found, arguments.out, torch.device("cpu"))
    return int(any(found[name][unit] > most for name in MODELS for unit, most in GOAL.items()))


if __name__ == "__main__":
    sys.exit(main())
