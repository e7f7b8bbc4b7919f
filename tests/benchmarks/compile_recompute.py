"""What compiling the rebuilds saves: the same selection on our engine, op by op and through inductor, taking turns.

A Llama shape, in fp32 and in bf16 as ``TrainingArguments(bf16=True)`` runs it. Times are CPU seconds inside the rebuilds,
medians over rounds, one thread. Prints JSON; exits 1 unless every gradient is bitwise that of no checkpointing, every
rebuild was compiled, and no compiled one is slower.

    python -m tests.benchmarks.compile_recompute [--rounds 7] [--layers 2] [--out FILE]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

import torch

from hf_ckpt.engine.frame import Frame

from .bench import Bench
from .record import add_out, record
from .rivals import DOTS, FULL, none, traced

SHAPE = {"hidden_size": 512, "intermediate_size": 1376, "num_attention_heads": 8}
SELECTIONS = {"dots_saveable": DOTS, "full": FULL}


class RebuildClock:
    """CPU seconds spent in rebuilds, from its making on."""

    def __init__(self) -> None:
        self.seconds = 0.0
        rebuilt = Frame.rebuilt

        def timed(frame: Frame) -> list[torch.Tensor]:
            start = time.process_time()
            try:
                return rebuilt(frame)
            finally:
                self.seconds += time.process_time() - start

        Frame.rebuilt = timed  # type: ignore[method-assign]

    def of(self, bench: Bench, name: str) -> float:
        """Of one step."""
        bench.use(name)
        self.seconds = 0.0
        bench.step()
        return self.seconds


def measure(clock: RebuildClock, layers: int, rounds: int, bf16: bool) -> dict[str, dict[str, Any]]:
    plain = {name: traced(decision) for name, decision in SELECTIONS.items()}
    fused = {f"{name}, compiled": traced(decision) for name, decision in SELECTIONS.items()}
    bench = Bench({"none": none, **plain, **fused}, (2, 512), bf16=bf16, num_hidden_layers=layers, **SHAPE)
    for name in fused:
        for engine in bench.engines[name]:
            engine.compile_recompute = True
    expected = bench.gradients("none")
    equal = {name: all(map(torch.equal, expected, bench.gradients(name))) for name in (*plain, *fused)}
    turns = [{name: clock.of(bench, name) for name in (*plain, *fused)} for _ in range(rounds)]
    seconds = {name: statistics.median(turn[name] for turn in turns) / layers for name in (*plain, *fused)}
    return {
        name: {
            "rebuild_ms_per_layer": round(1e3 * seconds[name], 2),
            "compiled_ms_per_layer": round(1e3 * seconds[f"{name}, compiled"], 2),
            "compiled_over_plain": round(seconds[f"{name}, compiled"] / seconds[name], 3),
            "all_compiled": all(engine.report().compiled for engine in bench.engines[f"{name}, compiled"]),
            "bitwise_equal": equal[name] and equal[f"{name}, compiled"],
        }
        for name in plain
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--layers", type=int, default=2)
    add_out(parser)
    chosen = parser.parse_args()
    clock = RebuildClock()
    found = {name: measure(clock, chosen.layers, chosen.rounds, name == "bf16") for name in ("fp32", "bf16")}
    record(found, chosen.out)
    rows = [row for by_selection in found.values() for row in by_selection.values()]
    good = all(row["bitwise_equal"] and row["all_compiled"] and row["compiled_over_plain"] <= 1 for row in rows)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
