"""Runs every cell on every card and writes the page: ``python -m tests.gpu_sim.judge [--cards a100,t4]``.

Cells are kept beside the simulated runtime, so an interrupted run goes on where it was, and another run beside it takes
cards off it.
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
from ..simulated import answer, rig
from .subjects import LABELS, SUBJECTS
from .table import page

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..simulated import Rig

PAGE = Path(__file__).parents[1] / "SIMULATED.md"
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

    def job(self, found: Rig) -> str:
        """What :mod:`.forks` reads."""
        fields = {"subject": self.subject, "setup": self.setup, "labels": LABELS, "kept": str(self.kept_in(found))}
        return json.dumps({**fields, "environment": found.of_card(self.card, allocator=self.allocator)})

    def cells(self, found: Rig) -> list[dict[str, Any]]:
        """What is kept of them."""
        kept = self.kept_in(found)
        lines = kept.read_text(encoding="utf-8").splitlines() if kept.exists() else []
        return [{"card": self.card, "allocator": self.allocator, **json.loads(line)} for line in lines]


def groups(cards: list[str], allocators: list[str], subjects: list[str]) -> list[Group]:
    """All that there are of these, in the order of the page."""
    pairs = [(name, setup) for name in subjects for setup in SUBJECTS[name].setups]
    return [Group(*place, *pair) for place in product(cards, allocators) for pair in pairs]


def run(wanted: Iterable[Group], found: Rig) -> None:
    """Run the cells of these. Raises SystemExit where a process failed, when the others are through."""
    failed = []
    with found.start("a100", ["-m", "tests.gpu_sim.judge.forks"]) as process:
        assert process.stdin is not None
        for group in wanted:
            process.stdin.write(group.job(found) + "\n")
            process.stdin.flush()
            ended = answer(process)
            print(*astuple(group), f"{ended['seconds']:.0f} s", ended["error"], flush=True)
            failed += [group] if ended["error"] else []
        process.stdin.close()
    if failed:
        raise SystemExit(f"{len(failed)} processes failed: {failed}")


def _not_kept(chosen: Iterable[Group], found: Rig) -> Iterator[Group]:
    """Those of which nothing is kept by the time that it is their turn."""
    return (group for group in chosen if not group.kept_in(found).exists())


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
    chosen = groups(asked.cards.split(","), asked.allocators.split(","), asked.subjects.split(","))
    if not asked.kept:
        run(chosen if asked.again else _not_kept(chosen, found), found)
    everything = groups(list(CARDS), ["", EXPANDABLE], list(SUBJECTS))
    shown = [cell for group in everything for cell in group.cells(found)]
    missing = [group for group in everything if not group.kept_in(found).exists()]
    roomless = [astuple(group) for group in everything if group not in missing and not group.cells(found)]
    asked.out.write_text(page(shown, COMMAND, len(missing), roomless), encoding="utf-8")


if __name__ == "__main__":
    main()
