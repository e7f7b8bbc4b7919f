"""Plans by batch against one plan for the longest batch, on real batches of skewed length through Trainer.

The data are the functions of the standard library, in Python tokens: most are short, some are long. Under a cap of
0.2 of the uncheckpointed peak, every batch runs without checkpointing, with the plan that the longest batch needs, and
with its own plan, taking turns; a batch counts with the median of its repeats. Exits 1 unless planning by batch takes at
most half of the static plan's added time at no higher peak, with bitwise equal gradients.

    python tests/benchmarks/length_skew.py [--batches 40] [--cap 0.2]
"""

from __future__ import annotations

import argparse
import ast
import statistics
import sys
import tempfile
import time
import tokenize
import warnings
import zlib
from io import StringIO
from pathlib import Path
from textwrap import dedent

import torch
from transformers import AutoModelForCausalLM, DataCollatorForSeq2Seq, LlamaConfig, Trainer, TrainingArguments

from hf_ckpt.engine import TracedReplay
from hf_ckpt.planner.budget import DeviceMemory, PeakBudget
from hf_ckpt.planner.calibrate import calibration
from hf_ckpt.planner.conductor import Conductor, PlannedLayer
from hf_ckpt.policy.decision import RecomputeLayer
from hf_ckpt.proof.peak import PeakMeter

LONGEST = 768
MODULES = ("argparse", "ast", "datetime", "doctest", "inspect", "pathlib", "shutil", "tarfile", "typing", "zipfile")
CPU = torch.device("cpu")


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

    def __init__(self, folder: str, rows: int) -> None:
        torch.manual_seed(0)
        config = LlamaConfig(
            num_hidden_layers=12,
            hidden_size=128,
            intermediate_size=352,
            num_attention_heads=4,
            vocab_size=256,
            use_cache=False,
        )
        self.model = AutoModelForCausalLM.from_config(config)
        self.layers = list(self.model.model.layers)
        arguments = TrainingArguments(
            output_dir=folder, per_device_train_batch_size=rows, use_cpu=True, report_to=[], disable_tqdm=True
        )
        collator = DataCollatorForSeq2Seq(Padding(), padding=True)
        self.trainer = Trainer(model=self.model, args=arguments, train_dataset=functions(), data_collator=collator)
        self.trainer.create_optimizer()
        self.model.train()
        self.engines: dict[str, list[TracedReplay | None]] = {"none": [None] * len(self.layers)}
        self.conductors: dict[str, Conductor] = {}

    def add(self, name: str, cap: int) -> Conductor:
        """A way to checkpoint under a cap of so many bytes."""
        engines = [TracedReplay(f"layer {i}", RecomputeLayer()) for i in range(len(self.layers))]
        self.engines[name] = engines
        planned = [PlannedLayer(layer, engine) for layer, engine in zip(self.layers, engines, strict=True)]
        self.conductors[name] = Conductor(
            self.model,
            planned,
            PeakBudget(cap),
            calibration(CPU),
            gradients_grow=True,
            memory=lambda device: DeviceMemory(None, 0),
        )
        return self.conductors[name]

    def step(self, name: str, batch: dict[str, torch.Tensor]) -> None:
        for layer, engine in zip(self.layers, self.engines[name], strict=True):
            layer.gradient_checkpointing = engine is not None
            layer._gradient_checkpointing_func = engine
        self.model.zero_grad()
        items = (batch["labels"] != -100).sum()
        self.trainer.training_step(self.model, dict(batch), items)

    def seconds(self, name: str, batch: dict[str, torch.Tensor]) -> float:
        """CPU seconds: on one thread the time of the step, undisturbed by what else the machine does."""
        start = time.process_time()
        self.step(name, batch)
        return time.process_time() - start

    def peak(self, name: str, batch: dict[str, torch.Tensor]) -> int:
        self.model.zero_grad()
        with PeakMeter(CPU) as meter:
            self.step(name, batch)
        return meter.peak_bytes

    def gradients(self, name: str, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--cap", type=float, default=0.2)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(0 if compare(Run(folder, chosen.rows), chosen) else 1)


def compare(run: Run, chosen: argparse.Namespace) -> bool:
    batches = [batch for batch, _ in zip(run.trainer.get_train_dataloader(), range(chosen.batches), strict=False)]
    sizes = sorted(b["input_ids"].numel() for b in batches)
    longest = max(batches, key=lambda b: b["input_ids"].numel())
    run.step("none", longest)
    uncheckpointed = run.peak("none", longest)
    cap = int(chosen.cap * uncheckpointed)
    prepare(run, batches, cap)
    print(
        f"tokens a batch: median {sizes[len(sizes) // 2]}, longest {sizes[-1]}; cap {chosen.cap} of the peak: {cap} bytes"
    )
    ways = list(run.engines)
    seconds = dict.fromkeys(ways, 0.0)
    for batch in batches:
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(chosen.repeats):
            for way in ways:
                times[way].append(run.seconds(way, batch))
        for way in ways:
            seconds[way] += statistics.median(times[way])
    wanted = run.gradients("none", longest)
    equal = {w: all(map(torch.equal, wanted, run.gradients(w, longest))) for w in ways}
    peaks = {way: max(run.peak(way, batch) for batch in (longest, batches[0])) for way in ways}
    for way in ways:
        print(
            f"{way:10s} time x{seconds[way] / seconds['none']:.3f}  peak x{peaks[way] / uncheckpointed:.3f}"
            f"  gradients bitwise equal: {equal[way]}"
        )
    share = (seconds["per batch"] - seconds["none"]) / (seconds["static"] - seconds["none"])
    print(f"planning by batch takes {share:.2f} of the static plan's added time")
    return share <= 0.5 and peaks["per batch"] <= max(cap, peaks["static"]) and all(equal.values())


if __name__ == "__main__":
    main()
