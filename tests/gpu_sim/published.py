"""Runs published trainings on simulated cards: what the allocator reserves where `hf-ckpt plan` says what is alive.

``python -m tests.gpu_sim.published`` starts it on the rig and writes ``tests/published/simulated.json``. Rows of reserved
bytes and of video memory are run, but for quantised weights under FSDP. transformers' own checkpointing stands for
theirs, torch's FlashAttention for flash-attn, and every row has the loss that its source was taken with.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.published.data import Pair, read_configs, read_sources
from tests.published.options import options_of

from .simulated import answer, rig

if TYPE_CHECKING:
    from collections.abc import Mapping

OUT = Path(__file__).parents[1] / "published" / "simulated.json"
STEPS = 4
#: Tokens of samples one by one, as a data set has them; the longest is the row's length.
SAMPLES = (1.0, 0.2, 0.6, 0.1, 0.9, 0.35, 0.75, 0.15, 0.5, 0.85, 0.25, 0.65, 0.95, 0.3, 1.0)


def jobs() -> list[dict[str, Any]]:
    """What is run: the key of a row, its options, and whether it has the older loss, and samples of many lengths."""
    found = []
    for source in read_sources():
        for pair in source.pairs:
            for name, text in (("", pair.plan), (" less", pair.less)):
                if text and pair.counted in ("reserved", "video memory") and _runs(text):
                    varied = "one by one" in source.measured
                    found.append(_job(pair, name, text, older=source.older_loss, varied=varied))
    return found


def _runs(text: str) -> bool:
    options = options_of(text)
    return not (options["ddp"] or (options["fsdp"] and options["load_in_4bit"]))


def _job(pair: Pair, name: str, text: str, *, older: bool, varied: bool) -> dict[str, Any]:
    return {"key": pair.key + name, "model": pair.model, "options": options_of(text), "older": older, "varied": varied}


def main() -> None:
    """Start all on the rig, and keep what they print."""
    found = rig()
    if found.missing():
        raise SystemExit(found.missing())
    read: dict[str, Any] = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}
    wanted = [job for job in jobs() if "--again" in sys.argv or job["key"] not in read]
    with found.start("a100", ["-m", "tests.gpu_sim.published", "here"]) as process:
        assert process.stdin is not None
        for job in wanted:
            environment = found.of_card(job["options"]["gpu"])
            process.stdin.write(json.dumps(job | {"environment": environment}) + "\n")
            process.stdin.flush()
            found_there = answer(process)
            print(job["key"], found_there, flush=True)
            if "reserved" in found_there:
                read[job["key"]] = found_there
                OUT.write_text(json.dumps(read, indent=1) + "\n", encoding="utf-8")
        process.stdin.close()


def here() -> None:
    """Run what stands on stdin, each in a fork."""
    from .judge.forks import forked

    for line in sys.stdin:
        job = json.loads(line)
        error = forked(job["environment"], partial(_print, job))
        if error:
            print(json.dumps({"error": error}), flush=True)


def _print(job: Mapping[str, Any]) -> None:
    from .scenarios.published import run

    found = run(
        read_configs()[job["model"]], job["options"], SAMPLES if job["varied"] else (1.0,) * STEPS, job["older"]
    )
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    here() if sys.argv[1:] == ["here"] else main()
