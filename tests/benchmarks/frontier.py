"""Step time against held bytes and peak: ours and everybody else's on one Llama shape, taking turns.

fp32; bf16 as ``TrainingArguments(bf16=True)`` runs it: autocast over fp32 weights; or bf16-weights: a model loaded in
bf16, without autocast.

Prints JSON. Exits 1 unless every gradient is bitwise that of no checkpointing and

* held <= 0.66 (bf16: 0.55) of no checkpointing costs at most 1.03 (bf16: 1.05) of its step,
* at the smallest held bytes ours is as fast as torch full at no more peak,
* every rival has a plan of ours that holds no more, peaks no higher and is as fast (1 % for noise).

    python -m tests.benchmarks.frontier [--rounds 5] [--dtype fp32|bf16|bf16-weights] [--out FILE]
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import torch

import hf_ckpt

from . import rivals
from .bench import Bench, ratio
from .device import here
from .record import add_out, record

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Tokens a step and the model: layers take long enough that the host does not decide.
SIZES = {
    "cpu": (
        (2, 512),
        {"num_hidden_layers": 6, "hidden_size": 512, "intermediate_size": 1376, "num_attention_heads": 8},
    ),
    "cuda": (
        (2, 2048),
        {"num_hidden_layers": 6, "hidden_size": 2048, "intermediate_size": 5504, "num_attention_heads": 16},
    ),
}
BUDGETS = (0.8, 0.66, 0.55, 0.5, 0.35, 0.33, 0.25)
GOALS = {"fp32": (0.66, 1.03), "bf16": (0.55, 1.05), "bf16-weights": (0.55, 1.05)}
NOISE = 1.01


def rivals_here() -> dict[str, rivals.Rival]:
    found = {
        "none": rivals.none,
        "torch full": rivals.torch_full,
        "every second layer": rivals.every_second,
        "torch SAC": rivals.torch_sac,
        "torchtitan SAC": rivals.torchtitan_sac,
        "ours: dots_saveable": rivals.traced(rivals.DOTS),
        "ours: full": rivals.traced(rivals.FULL),
    }
    if importlib.util.find_spec("torch_remat"):
        found["torch_remat"] = rivals.torch_remat
    return found


def add_budgets(bench: Bench) -> None:
    """Let the planner choose, at each budget, a plan for every layer."""
    for share in BUDGETS:
        handle = hf_ckpt.apply(bench.model, f"budget={share}")
        for _ in range(2):  # the first step teaches the planner the layers
            bench.step()
        plans = [region.replay.plan for region in handle.installation.regions]
        handle.restore()
        layers = enumerate(zip(plans, bench.layers, strict=True))
        bench.engines[f"ours: budget={share}"] = [rivals.traced(plan)(i, layer) for i, (plan, layer) in layers]


def measure(bench: Bench, rounds: int) -> dict[str, dict[str, Any]]:
    expected = bench.gradients("none")
    equal = {name: all(map(torch.equal, expected, bench.gradients(name))) for name in bench.engines}
    live = {name: bench.live_bytes(name) for name in bench.engines}
    times = bench.seconds(rounds)
    held, peak = live["none"]
    return {
        name: {
            "step": round(ratio(times, name), 4),
            "held": round(live[name][0] / held, 4),
            "peak": round(live[name][1] / peak, 4),
            "bitwise_equal": equal[name],
        }
        for name in bench.engines
    }


def misses(rows: dict[str, dict[str, Any]], dtype: str) -> list[str]:
    """Which of the goals are not met, in words."""
    ours = {name: row for name, row in rows.items() if name.startswith("ours")}
    held, step = GOALS[dtype]
    found = [f"gradients of {name} differ" for name, row in rows.items() if not row["bitwise_equal"]]
    if not any(row["held"] <= held and row["step"] <= step for row in ours.values()):
        found.append(f"no plan holds {held} at a step of {step}")
    for name, row in rows.items():
        if name in ours or name == "none":
            continue
        if not any(_covers(our, row) for our in ours.values()):
            found.append(f"no plan of ours is as good as {name}")
    return found


def _covers(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    return ours["held"] <= theirs["held"] and ours["peak"] <= theirs["peak"] and ours["step"] <= theirs["step"] * NOISE


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", choices=GOALS, default="fp32")
    add_out(parser)
    options = parser.parse_args(arguments)
    weights = torch.bfloat16 if options.dtype == "bf16-weights" else torch.float32
    tokens, shape = SIZES[here().type]
    bench = Bench(rivals_here(), tokens, bf16=options.dtype == "bf16", weights=weights, **shape)
    add_budgets(bench)
    rows = measure(bench, options.rounds)
    missed = misses(rows, options.dtype)
    record({"dtype": options.dtype, "rows": rows, "missed": missed}, options.out, bench.device)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
