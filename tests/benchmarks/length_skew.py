"""Plans by batch against one plan for the longest batch, on real batches of skewed length through Trainer.

The data are the functions of the standard library, in Python tokens: most are short, some are long. Under a cap of
0.2 of the uncheckpointed peak, every batch runs without checkpointing, with the plan that the longest batch needs, and
with its own plan, taking turns. A batch counts with the median over rounds of what each way adds to the step without
checkpointing beside it. Exits 1 unless planning by batch takes at most half of the static
plan's added time, its peak is at most the static plan's or the cap, and gradients are bitwise equal.

    python -m tests.benchmarks.length_skew [--batches 24] [--rounds 9] [--cap 0.2] [--out FILE]
"""

from __future__ import annotations

import argparse
import ast
import statistics
import sys
import tempfile
import tokenize
import warnings
import zlib
from io import StringIO
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM, DataCollatorForSeq2Seq, LlamaConfig, Trainer, TrainingArguments

from hf_ckpt.engine import TracedReplay
from hf_ckpt.measuring.peak import PeakMeter
from hf_ckpt.planner.batches.batch_planner import BatchPlanner, PlannedLayer
from hf_ckpt.planner.budget import DeviceMemory, PeakBudget
from hf_ckpt.planner.calibration.calibrate import calibration
from hf_ckpt.policy.decision import RecomputeLayer

from .device import deterministic, here, seconds
from .record import add_out, record

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST = 768
MODULES = ("argparse", "ast", "datetime", "doctest", "inspect", "pathlib", "shutil", "tarfile", "typing", "zipfile")
#: Rows of a batch, and a model whose layers take long enough that the host does not decide.
SIZES = {
    "cpu": (2, {"hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4}),
    "cuda": (4, {"hidden_size": 256, "intermediate_size": 704, "num_attention_heads": 8}),
}


class Padding:
    """The tokenizer that a collator asks to pad; 0 is padding."""

    padding_side = "right"

    def pad(self, features, return_tensors=None, **_):
        length = max(len(f["input_ids"]) for f in features)
        rows = {name: [list(f[name]) + [0] * (length - len(f[name])) for f in features] for name in features[0]}
        return {name: torch.tensor(values) for name, values in rows.items()}


def functions() -> list[dict[str, list[int]]]:
    """The functions of some modules of the standard library, as ids of Python tokens."""
    folder, found = Path(ast.__file__).parent, []
    for name in MODULES:
        source = (folder / f"{name}.py").read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                text = dedent(ast.get_source_segment(source, node, padded=True) or "")
                words = [token.string for token in tokenize.generate_tokens(StringIO(text).readline)]
                ids = [1 + zlib.crc32(word.encode()) % 255 for word in words[:LONGEST]]
                found.append({"input_ids": ids, "labels": ids, "attention_mask": [1] * len(ids)})
    return found


class Run:
    """One model, three ways to checkpoint it, and a Trainer whose real batches all of them take."""

    def __init__(self, folder: str, rows: int | None) -> None:
        torch.manual_seed(0)
        self.device = here()
        on_cpu = self.device.type == "cpu"
        usual, shape = SIZES[self.device.type]
        config = LlamaConfig(num_hidden_layers=12, vocab_size=256, use_cache=False, **shape)
        self.model = AutoModelForCausalLM.from_config(config)
        self.layers = list(self.model.model.layers)
        arguments = TrainingArguments(
            output_dir=folder, per_device_train_batch_size=rows or usual, use_cpu=on_cpu, bf16=not on_cpu,
            report_to=[], disable_tqdm=True,
        )  # fmt: skip
        collator = DataCollatorForSeq2Seq(Padding(), padding=True)
        self.trainer = Trainer(model=self.model, args=arguments, train_dataset=functions(), data_collator=collator)
        self.trainer.create_optimizer()
        self.model.train()
        self.engines: dict[str, list[TracedReplay | None]] = {"none": [None] * len(self.layers)}
        self.planners: dict[str, BatchPlanner] = {}

    def add(self, name: str, cap: int) -> BatchPlanner:
        """A way to checkpoint under a cap of so many bytes."""
        engines = [TracedReplay(f"layer {i}", RecomputeLayer()) for i in range(len(self.layers))]
        self.engines[name] = engines
        planned = [PlannedLayer(layer, engine) for layer, engine in zip(self.layers, engines, strict=True)]
        self.planners[name] = BatchPlanner(
            self.model,
            planned,
            PeakBudget(cap),
            calibration(self.device),
            gradients_grow=True,
            memory=lambda device: DeviceMemory(None, 0),
        )
        return self.planners[name]

    def step(self, name: str, batch: dict[str, torch.Tensor]) -> None:
        for layer, engine in zip(self.layers, self.engines[name], strict=True):
            layer.gradient_checkpointing = engine is not None
            layer._gradient_checkpointing_func = engine
        self.model.zero_grad()
        items = (batch["labels"] != -100).sum()
        self.trainer.training_step(self.model, dict(batch), items)

    def seconds(self, name: str, batch: dict[str, torch.Tensor]) -> float:
        return seconds(lambda: self.step(name, batch), self.device)

    def peak(self, name: str, batch: dict[str, torch.Tensor]) -> int:
        self.model.zero_grad()
        with PeakMeter(self.device) as meter:
            self.step(name, batch)
        return meter.peak_bytes

    def gradients(self, name: str, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        with deterministic():
            self.step(name, batch)
        return [p.grad.clone() for p in self.model.parameters()]


def prepare(run: Run, batches: list[dict[str, torch.Tensor]], cap: int) -> None:
    """Make all plans: the static way only that of the longest batch."""
    longest = max(batches, key=lambda b: b["input_ids"].numel())
    static = run.add("static", cap)
    static.attach()
    run.step("static", longest)
    run.step("static", longest)
    static.undo()
    per_batch = run.add("per batch", cap)
    per_batch.attach()
    for batch in [*batches, *batches]:
        run.step("per batch", batch)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--cap", type=float, default=0.2)
    add_out(parser)
    chosen = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        result = compare(Run(folder, chosen.rows), chosen)
    record(result, chosen.out, here())
    return 1 if result["missed"] else 0


def compare(run: Run, chosen: argparse.Namespace) -> dict[str, Any]:
    batches = [batch for batch, _ in zip(run.trainer.get_train_dataloader(), range(chosen.batches), strict=False)]
    tokens = sorted(b["input_ids"].numel() for b in batches)
    longest = max(batches, key=lambda b: b["input_ids"].numel())
    run.step("none", longest)
    uncheckpointed = run.peak("none", longest)
    cap = int(chosen.cap * uncheckpointed)
    prepare(run, batches, cap)
    times = take_turns(run, batches, chosen.rounds)
    share, spread = share_of_added(times)
    wanted = run.gradients("none", longest)
    ways = {
        way: {
            "step": round(total(times, way) / total(times, "none"), 4),
            "peak": round(max(run.peak(way, batch) for batch in (longest, batches[0])) / uncheckpointed, 4),
            "bitwise_equal": all(map(torch.equal, wanted, run.gradients(way, longest))),
        }
        for way in run.engines
    }
    return {
        "tokens_a_batch": {"median": tokens[len(tokens) // 2], "longest": tokens[-1]},
        "cap_bytes": cap,
        "ways": ways,
        "share_of_static_added": round(share, 3),
        "share_by_round": spread,
        "batches": [batch_row(batch, found) for batch, found in zip(batches, times, strict=True)],
        "missed": misses(ways, share, chosen.cap),
    }


def take_turns(run: Run, batches: list[dict[str, torch.Tensor]], rounds: int) -> list[dict[str, list[float]]]:
    """Seconds of every batch each way, a round after the other; who goes first changes from round to round."""
    ways = list(run.engines)
    times: list[dict[str, list[float]]] = [{way: [] for way in ways} for _ in batches]
    for turn in range(rounds):
        for batch, found in zip(batches, times, strict=True):
            for place in range(len(ways)):
                way = ways[(turn + place) % len(ways)]
                found[way].append(run.seconds(way, batch))
    return times


def batch_row(batch: dict[str, torch.Tensor], found: dict[str, list[float]]) -> dict[str, float]:
    """Tokens of a batch, and milliseconds each way."""
    typical = {way: round(1e3 * statistics.median(seconds), 2) for way, seconds in found.items()}
    return {"tokens": batch["input_ids"].numel(), **typical}


def total(times: list[dict[str, list[float]]], way: str) -> float:
    """Seconds of all batches, each with its median."""
    return sum(statistics.median(found[way]) for found in times)


def share_of_added(times: list[dict[str, list[float]]]) -> tuple[float, list[float]]:
    """What planning by batch adds over what the static plan adds: medians over rounds, and round by round."""
    rounds = range(len(times[0]["none"]))

    def added(way: str, turn: int) -> list[float]:
        return [found[way][turn] - found["none"][turn] for found in times]

    def typical(way: str) -> float:
        return sum(statistics.median(a) for a in zip(*(added(way, turn) for turn in rounds), strict=True))

    by_round = [round(sum(added("per batch", turn)) / sum(added("static", turn)), 3) for turn in rounds]
    return typical("per batch") / typical("static"), by_round


def misses(ways: dict[str, dict[str, Any]], share: float, cap: float) -> list[str]:
    found = [f"gradients of {way} differ" for way, row in ways.items() if not row["bitwise_equal"]]
    if share > 0.5:
        found.append(f"planning by batch takes {share:.2f} of the static plan's added time")
    if ways["per batch"]["peak"] > max(cap, ways["static"]["peak"]):
        found.append("planning by batch peaks higher than the static plan and the cap")
    return found


if __name__ == "__main__":
    sys.exit(main())
