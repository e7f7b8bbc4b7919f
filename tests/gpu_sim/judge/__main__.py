"""Runs every cell on every card and writes the page: ``python -m tests.gpu_sim.judge [--cards a100,t4]``.

Cells are kept beside the simulated runtime, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import astuple, dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_ckpt.devices.cards import CARDS

from ..build import PLACE
from ..simulated import rig
from .subjects import LABELS, SUBJECTS
from .table import page

if TYPE_CHECKING:
    from ..simulated import Rig

PAGE = Path(__file__).parents[1] / "SIMULATED.md"
STEPS = 12
EXPANDABLE = "expandable_segments:True"
COMMAND = "make sim"


@dataclass(frozen=True, slots=True)
class Group:
    """The cells of one process: a subject in a setup on a card under an allocator's settings."""

    card: str
    allocator: str
    subject: str
    setup: str

    def kept_in(self, found: Rig) -> Path:
        """The file that keeps them."""
        names = ("".join(filter(str.isalnum, name)) for name in (self.card, self.allocator, self.subject, self.setup))
        return found.folder / PLACE / "cells" / f"{'-'.join(names)}.jsonl"

    def run(self, found: Rig) -> None:
        """Run them. Raises SystemExit with what the process wrote when it failed."""
        arguments = ["-m", "tests.gpu_sim.judge.on_card", self.subject, self.setup, *LABELS]
        ended = found.run(self.card, arguments, allocator=self.allocator)
        if ended.returncode:
            raise SystemExit(f"{self} ended with {ended.returncode}\n{ended.stderr[-4000:]}")
        kept = self.kept_in(found)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(ended.stdout, encoding="utf-8")
        print(*astuple(self), flush=True)

    def cells(self, found: Rig) -> list[dict[str, Any]]:
        """What is kept of them."""
        kept = self.kept_in(found)
        printed = kept.read_text(encoding="utf-8").splitlines() if kept.exists() else []
        lines = (line for line in printed if line.startswith("{"))  # torch prints a warning or two
        return [{"card": self.card, "allocator": self.allocator, **json.loads(line)} for line in lines]


def groups(cards: list[str], allocators: list[str], subjects: list[str]) -> list[Group]:
    """All that there are of these, in the order of the page."""
    pairs = [(name, setup) for name in subjects for setup in SUBJECTS[name].setups]
    return [Group(*place, *pair) for place in product(cards, allocators) for pair in pairs]


def main() -> None:
    """Run them all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cards", default=",".join(CARDS))
    parser.add_argument("--allocators", default=f",{EXPANDABLE}", help="values of PYTORCH_CUDA_ALLOC_CONF")
    parser.add_argument("--subjects", default=",".join(SUBJECTS))
    parser.add_argument("--again", action="store_true", help="run those that are kept, too")
    parser.add_argument("--kept", action="store_true", help="run nothing, write the page of all that is kept")
    parser.add_argument("--out", type=Path, default=PAGE)
    asked = parser.parse_args()
    found = rig()
    if found.missing():
        raise SystemExit(found.missing())
    for group in groups(asked.cards.split(","), asked.allocators.split(","), asked.subjects.split(",")):
        if not asked.kept and (asked.again or not group.kept_in(found).exists()):
            group.run(found)
    everything = groups(list(CARDS), ["", EXPANDABLE], list(SUBJECTS))
    shown = [cell for group in everything for cell in group.cells(found)]
    missing = sum(not group.kept_in(found).exists() for group in everything)
    asked.out.write_text(page(shown, COMMAND, STEPS, missing), encoding="utf-8")


if __name__ == "__main__":
    main()
