"""`make demo`: one model, one seed, three policies. What each holds, what it costs, and that training is the same.

Trains a small Llama with LoRA adapters on the sources of Python's standard library, once with no activation
checkpointing, once with every layer checkpointed, once under a budget; then lints the classic mistakes.
`--model NAME_OR_PATH` takes a real model instead.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from peft import LoraConfig, get_peft_model
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from stdlib_text import VOCABULARY, byte_blocks, stdlib_text
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    PreTrainedModel,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

import hf_ckpt
from hf_ckpt import SelectiveCkpt
from hf_ckpt.measuring.peak import PeakMeter
from hf_ckpt.measuring.report import as_table

if TYPE_CHECKING:
    from hf_ckpt.measuring.report import Report

SEED = 17
SMALL_LLAMA = LlamaConfig(
    vocab_size=VOCABULARY, hidden_size=256, intermediate_size=688, num_hidden_layers=8, num_attention_heads=8,
    num_key_value_heads=4, bos_token_id=0, eos_token_id=0,
)  # fmt: skip
#: The first steps of a policy trace the layers, and a budget makes its plan from what they show.
WARM_UP = 3
console = Console(width=max(110, Console().width))


@dataclass
class Run:
    """One policy: its Trainer after training, and what was measured."""

    name: str
    trainer: Trainer
    callback: SelectiveCkpt
    loss: float
    report: Report = field(init=False)
    peak_bytes: int = 0
    step_ratio: float = 1.0

    @property
    def adapters(self) -> dict[str, torch.Tensor]:
        """The trained weights."""
        return {name: p for name, p in self.trainer.model.named_parameters() if p.requires_grad}


def main() -> None:
    """Train, compare, lint."""
    options = parse_options()
    try:
        data = read_data(options)
    except (OSError, ValueError) as error:
        raise SystemExit(f"demo: {options.model or 'the text'} cannot be read: {str(error).splitlines()[0]}") from error
    callbacks = [SelectiveCkpt("none"), SelectiveCkpt("full"), SelectiveCkpt(budget=options.budget)]
    runs = [train(callback, options, data) for callback in callbacks]
    check_identical(runs)
    measure(runs, data, options)
    console.print()
    console.print(as_table(runs[-1].report))
    console.print(comparison(runs, options))
    lint_mistakes()


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", help="train this model (hub name or path) instead of a small random Llama")
    parser.add_argument("--budget", default="0.5", help="of the selective run: a share or bytes (default: 0.5)")
    parser.add_argument("--steps", type=int, default=9, help="optimizer steps of each run (default: 9)")
    parser.add_argument("--rounds", type=int, default=7, help="timed steps of each policy (default: 7)")
    parser.add_argument("--length", type=int, default=512, help="tokens in an example (default: 512)")
    parser.add_argument("--batch", type=int, default=2, help="examples in a step (default: 2)")
    return parser.parse_args()


def build_model(name: str | None) -> PreTrainedModel:
    """The model with fresh LoRA adapters: the same weights at every call."""
    set_seed(SEED)
    if name is None:
        model, targets = AutoModelForCausalLM.from_config(SMALL_LLAMA), ["q_proj", "v_proj"]
    else:
        model, targets = AutoModelForCausalLM.from_pretrained(name), "all-linear"
    adapters = LoraConfig(r=8, lora_alpha=16, lora_dropout=0.1, target_modules=targets, task_type="CAUSAL_LM")
    return get_peft_model(model, adapters)


def read_data(options: argparse.Namespace) -> list[dict[str, list[int]]]:
    """Standard library sources, by bytes or by the model's own tokenizer."""
    count = options.steps * options.batch
    if options.model is None:
        return byte_blocks(count, options.length)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    tokens = tokenizer(stdlib_text(8 * count * options.length).decode("utf-8", "replace"))["input_ids"]
    rows = [tokens[i * options.length : (i + 1) * options.length] for i in range(count)]
    return [{"input_ids": row, "labels": row} for row in rows if len(row) == options.length]


def train(callback: SelectiveCkpt, options: argparse.Namespace, data: list[Any]) -> Run:
    """A real Trainer run, with its own progress bar."""
    name = str(callback.policy)
    console.rule(f"Trainer(callbacks=[SelectiveCkpt({name!r})])", align="left")
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=options.steps, per_device_train_batch_size=options.batch, learning_rate=1e-3,
            logging_steps=max(1, options.steps // 3), save_strategy="no", report_to="none", seed=SEED,
            dataloader_pin_memory=torch.cuda.is_available(),
        )  # fmt: skip
        trainer = Trainer(build_model(options.model), arguments, train_dataset=data, callbacks=[callback])
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return Run(name, trainer, callback, losses[-1])


def check_identical(runs: list[Run]) -> None:
    """Stop unless every run ended with the same loss and the same weights, to the last bit."""
    first = runs[0]
    for run in runs[1:]:
        unequal = [name for name, value in run.adapters.items() if not torch.equal(value, first.adapters[name])]
        if run.loss != first.loss or unequal:
            raise SystemExit(
                f"demo: `{run.name}` trained differently from `{first.name}`: loss {run.loss!r} against "
                f"{first.loss!r}, {len(unequal)} weights differ"
            )


def measure(runs: list[Run], data: list[Any], options: argparse.Namespace) -> None:
    """More steps on the trained models: what is held after forward, the peak, and the time."""
    handles = [hf_ckpt.apply(run.trainer.model, run.callback.policy) for run in runs]
    for run, handle in zip(runs, handles, strict=True):
        for _ in range(WARM_UP):
            step(run, data, options)
        with handle.measure():
            step(run, data, options)
        run.report = handle.report()
        with PeakMeter(run.trainer.args.device) as meter:
            step(run, data, options)
        run.peak_bytes = meter.peak_bytes
    measure_times(runs, data, options)
    for handle in handles:
        handle.restore()


def measure_times(runs: list[Run], data: list[Any], options: argparse.Namespace) -> None:
    """Each policy in turn, so that whatever else the machine does hits all of them."""
    laps = [[step(run, data, options) for run in runs] for _ in range(options.rounds)]
    for index, run in enumerate(runs):
        run.step_ratio = median(lap[index] / lap[0] for lap in laps)


def step(run: Run, data: list[Any], options: argparse.Namespace) -> float:
    """Trainer's own forward and backward on the first batch; its seconds."""
    trainer = run.trainer
    trainer.model.zero_grad()
    inputs = default_data_collator(data[: options.batch])
    wait(trainer)
    start = time.perf_counter()
    trainer.training_step(trainer.model, inputs)
    wait(trainer)
    return time.perf_counter() - start


def wait(trainer: Trainer) -> None:
    """Until the device has done what it was told."""
    if trainer.args.device.type == "cuda":
        torch.cuda.synchronize(trainer.args.device)


def comparison(runs: list[Run], options: argparse.Namespace) -> Table:
    """All policies side by side."""
    model = options.model or "8-layer Llama with LoRA, random weights"
    table = Table(title=f"{model}, {options.batch} x {options.length} tokens a step", title_justify="left")
    for heading in ("policy", "held after forward", "peak", "step time", "final loss", "trained weights"):
        table.add_column(heading, justify="left" if heading in ("policy", "trained weights") else "right", no_wrap=True)
    first = runs[0]
    for run in runs:
        table.add_row(
            run.name,
            share(run.report.held_bytes, first.report.held_bytes),
            share(run.peak_bytes, first.peak_bytes),
            f"{run.step_ratio:.2f} x",
            repr(run.loss),
            "" if run is first else "same, every bit",
        )
    table.caption = "peak: above weights and optimizer. step time: forward and backward, steps taken in turn, median"
    table.caption_justify = "left"
    return table


def share(value: int, base: int) -> str:
    """Bytes, and their share of the uncheckpointed run's."""
    return f"{decimal(value)} ({value / base:.0%})"


def lint_mistakes() -> None:
    """ckpt-lint on scripts that hold one classic mistake each: one finding in full, then the count of all."""
    folder = Path(os.path.relpath(Path(__file__).with_name("mistakes")))
    # Named one by one, for the folder is excluded where this repository lints itself.
    lint(str(folder / "ckpt105_*.py"))
    lint(str(folder / "ckpt*.py"), "--statistics")
    console.print("each of these scripts shows its mistake happen: `python examples/mistakes/ckpt105_*.py`")


def lint(pattern: str, *options: str) -> None:
    """Run ckpt-lint, under a line that says how."""
    console.print()
    console.rule(" ".join(("ckpt-lint", pattern, *options)), align="left")
    command = [sys.executable, "-m", "hf_ckpt.lint", *sorted(glob(pattern)), *options]
    if subprocess.run(command, check=False).returncode not in (0, 1):
        raise SystemExit("demo: ckpt-lint failed")


if __name__ == "__main__":
    main()
