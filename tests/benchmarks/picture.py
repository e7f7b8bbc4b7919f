"""Draws what `make bench` measured: step time against memory, ours and everybody else's, as an SVG.

python -m tests.benchmarks.picture tests/benchmarks/results/frontier.json tests/benchmarks/results/frontier.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

#: What the same tool writes every time: an SVG without a date and with the same names inside.
matplotlib.rcParams["svg.hashsalt"] = "hf-ckpt"
matplotlib.rcParams["svg.fonttype"] = "none"


def draw(rows: dict[str, dict[str, Any]], out: Path) -> None:
    """One point a row: held bytes and step time, both as a share of no activation checkpointing."""
    figure, axes = plt.subplots(figsize=(7.2, 4.0))
    ours = {name: row for name, row in rows.items() if name.startswith("ours: budget")}
    others = {name: row for name, row in rows.items() if not name.startswith("ours")}
    line = sorted((row["held"], row["step"]) for row in ours.values())
    axes.plot(*zip(*line, strict=True), "o-", color="#1f6feb", label="hf-ckpt, budget=0.25 to 0.8")
    axes.plot(*_points(others), "s", color="#8b949e", label="others")
    for name, row in others.items():
        axes.annotate(name, (row["held"], row["step"]), (5, 5), textcoords="offset points", fontsize=9)
    axes.set(
        xlabel="activations held after forward (1.0: no checkpointing)", ylabel="step time (1.0: no checkpointing)"
    )
    axes.set_xlim(0, 1.12)
    axes.margins(y=0.08)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


def _points(rows: dict[str, dict[str, Any]]) -> tuple[list[float], list[float]]:
    return [row["held"] for row in rows.values()], [row["step"] for row in rows.values()]


def main() -> None:
    """Read a record of `tests.benchmarks.frontier`, write its picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    draw(json.loads(options.record.read_text())["result"]["rows"], options.out)


if __name__ == "__main__":
    main()
