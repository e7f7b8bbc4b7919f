"""Runs every cell on every card and writes the page: ``python -m tests.gpu_sim.judge [--cards a100,t4] [--again]``.

Cells are kept beside the simulated runtime, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_ckpt.devices.cards import CARDS

from ..build import PLACE
from ..simulated import Rig, rig
from .subjects import LABELS, SUBJECTS
from .table import page

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[1] / "SIMULATED.md"
STEPS = 9
EXPANDABLE = "expandable_segments:True"
COMMAND = "make sim"


def cells(found: Rig, cards: list[str], allocators: list[str], *, again: bool) -> Iterator[dict[str, Any]]:
    """Every cell of these cards; those that are there already are not run again."""
    for card in cards:
        for allocator in allocators:
            for subject in SUBJECTS.values():
                for setup in subject.setups:
                    kept = _kept(found, card, allocator, subject.name, setup)
                    if again or not kept.exists():
                        _run(found, card, allocator, [subject.name, setup, *LABELS], kept)
                    lines = kept.read_text(encoding="utf-8").splitlines()
                    yield from ({"card": card, "allocator": allocator, **json.loads(line)} for line in lines)


def _kept(found: Rig, *names: str) -> Path:
    name = "-".join("".join(c for c in name if c.isalnum()) for name in names)
    return found.folder / PLACE / "cells" / f"{name}.jsonl"


def _run(found: Rig, card: str, allocator: str, arguments: list[str], kept: Path) -> None:
    ended = found.run(card, ["-m", "tests.gpu_sim.judge.on_card", *arguments], allocator=allocator)
    if ended.returncode:
        raise SystemExit(f"{card}, {arguments}: ended with {ended.returncode}\n{ended.stderr[-4000:]}")
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(ended.stdout, encoding="utf-8")
    print(card, allocator or "default allocator", *arguments[:2], flush=True)


def main() -> None:
    """Run them all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cards", default=",".join(CARDS))
    parser.add_argument("--allocators", default=f",{EXPANDABLE}", help="values of PYTORCH_CUDA_ALLOC_CONF")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--out", type=Path, default=PAGE)
    asked = parser.parse_args()
    found = rig()
    if found.missing():
        raise SystemExit(found.missing())
    shown = list(cells(found, asked.cards.split(","), asked.allocators.split(","), again=asked.again))
    asked.out.write_text(page(shown, COMMAND, STEPS), encoding="utf-8")


if __name__ == "__main__":
    main()
