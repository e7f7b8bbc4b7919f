"""Host time that checkpointing adds, on layers so small that there is hardly anything else.

The same selection (matmuls and attention kept, the rest rebuilt) on our engine, torch's selective checkpointing and
torch_remat, beside torch's full checkpointing. Prints JSON; exits 1 unless ours adds at most 0.35 of what torch full
adds and 0.15 of what torch SAC adds, with bitwise equal gradients.

    python -m tests.benchmarks.host_cost [--rounds 25] [--out FILE]
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from typing import TYPE_CHECKING

import torch

from .bench import Bench, added
from .record import add_out, record
from .rivals import DOTS, FULL, Rival, none, torch_full, torch_remat, torch_sac, traced

if TYPE_CHECKING:
    from collections.abc import Sequence

LAYERS = 16
LIMITS = {"torch full": 0.35, "torch SAC": 0.15}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=25)
    add_out(parser)
    chosen = parser.parse_args(arguments)
    rivals: dict[str, Rival] = {
        "none": none,
        "torch full": torch_full,
        "torch SAC": torch_sac,
        "ours": traced(DOTS),
        "ours, all rebuilt": traced(FULL),
    }
    if importlib.util.find_spec("torch_remat"):
        rivals["torch_remat"] = torch_remat
    bench = Bench(
        rivals, (1, 16),
        num_hidden_layers=LAYERS, hidden_size=32, intermediate_size=64, num_attention_heads=2,
    )  # fmt: skip
    expected = bench.gradients("none")
    equal = {name: all(map(torch.equal, expected, bench.gradients(name))) for name in rivals}
    times = bench.seconds(chosen.rounds)
    cost = {name: added(times, name) / LAYERS for name in rivals if name != "none"}
    shares = {name: cost["ours"] / cost[name] for name in LIMITS}
    result = {
        "added_us_per_layer": {name: round(1e6 * seconds) for name, seconds in cost.items()},
        "ours_over": {name: round(share, 3) for name, share in shares.items()},
        "all_rebuilt_over_torch_full": round(cost["ours, all rebuilt"] / cost["torch full"], 3),
        "bitwise_equal": equal,
    }
    record(result, chosen.out, bench.device)
    return 0 if all(shares[n] <= limit for n, limit in LIMITS.items()) and all(equal.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
