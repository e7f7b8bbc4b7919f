"""Holds ckpt-lint's findings against what programs really do: precision and recall by rule, against executed truth.

python -m tests.truth.judge --programs 2000 --disagreements FOLDER
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click
from hf_ckpt.lint import check_source

from ..forked import Forked
from .grammar import Program, write_program
from .outcome import Effect, Run, effects_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "ACCELERATE_USE_CPU": "true"}
#: Programs that one process answers for, each in forks of its own: it loads in a second what they need.
_AT_ONCE = 25
#: What a finding of each hundred of codes claims. A program that raises never gets to where it would show anything
#: else. Advice (CKPT4xx, 5xx and the codes of ADVICE) claims none of these.
CLAIMS = {
    "1": frozenset({Effect.WRONG, Effect.RAISES}),
    "2": frozenset({Effect.NO_EFFECT, Effect.WRONG, Effect.RAISES}),
    "3": frozenset({Effect.RAISES}),
}
#: Rules whose harm no comparison of these two runs shows: what a program leaves open or says by mistake, hooks that do
#: not run (CKPT306), random numbers that repeat in both runs (CKPT122), an error that is silenced (CKPT130).
ADVICE = frozenset(f"CKPT{number}" for number in (101, 102, 103, 122, 124, 130, 133, 202, 205, 215, 306))
#: Those of ADVICE that say that a setting has no effect: they find such a mistake, and no run refutes them.
IDLE = frozenset(f"CKPT{number}" for number in (202, 205, 215))
#: What a write claims to have no effect on is seen only where nothing else asks for checkpointing.
WRITES = frozenset(("CKPT201",))
#: Those that may say that parameters get no gradient, which both runs show: the cut is there without checkpoints, too.
CUTS = frozenset(("CKPT121", "CKPT128"))
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Judged:
    """One program: what it does (None: cannot be told), and the codes that ckpt-lint reports."""

    program: Program
    effects: frozenset[Effect] | None
    codes: tuple[str, ...]
    error: str
    #: Whether no backward pass recomputed anything, asked for or not: a setting had no effect.
    is_idle: bool
    #: Whether some parameter that an optimizer has got no gradient in some step.
    is_cut: bool

    @property
    def claims(self) -> tuple[str, ...]:
        """The reported codes that claim something a run shows."""
        unseen = ADVICE if self.is_idle else ADVICE | WRITES
        return tuple(code for code in self.codes if code[4] in CLAIMS and code not in unseen)

    @property
    def untrue(self) -> tuple[str, ...]:
        """The reported codes whose claim the run refutes."""
        shown = self.effects or frozenset()
        if self.is_idle:
            shown |= {Effect.NO_EFFECT}
        untrue = (code for code in self.claims if not CLAIMS[code[4]] & shown)
        return tuple(code for code in untrue if not (self.is_cut and code in CUTS))

    @property
    def is_missed(self) -> bool:
        """Whether something goes wrong and no code says that it does."""
        told = set(self.claims) - set(self.untrue) - CUTS
        idle = Effect.NO_EFFECT in (self.effects or ()) and not IDLE.isdisjoint(self.codes)
        return bool(self.effects) and not told and not idle


def executed(programs: Iterable[Program], forked: Forked) -> Iterator[tuple[Program, tuple[tuple[Run, Run], ...]]]:
    """Run every program in each way to start it: as written, and without its checkpoints."""
    left = iter(programs)
    while some := list(islice(left, _AT_ONCE)):
        asked = [{"text": p.text, "arguments": arguments} for p in some for arguments in p.command_lines]
        lines = "".join(f"{json.dumps(one)}\n" for one in asked)
        done = forked.run("-m", "tests.truth.execute", folder=ROOT, stdin=lines, **_ENVIRONMENT)
        assert done.status == 0, done.stderr
        told = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(told) == len(asked), f"{len(told)} records for {len(asked)} runs"
        records = iter(told)
        for program in some:
            own = islice(records, len(program.command_lines))
            yield program, tuple((Run.of(record["written"]), Run.of(record["plain"])) for record in own)


def judged(program: Program, runs: tuple[tuple[Run, Run], ...]) -> Judged:
    """What ckpt-lint reports of ``program`` beside what its runs show: a mistake is one in any way to start it."""
    codes = tuple(finding.code for finding in check_source(program.text, "program.py"))
    effects = [effects_of(written, plain) for written, plain in runs]
    told = None if None in effects else frozenset().union(*filter(None, effects))
    errors = (
        written.error or (f"without checkpoints: {plain.error}" if plain.error else "") for written, plain in runs
    )
    is_idle = not any(any(written.replays) for written, _ in runs)
    is_cut = any(gradient is None for written, _ in runs for step in written.steps for gradient in step)
    return Judged(program, told, codes, next(filter(None, errors), ""), is_idle, is_cut)


def judge(programs: Iterable[Program], forked: Forked) -> Iterator[Judged]:
    """Run and check every program."""
    return (judged(*run) for run in executed(programs, forked))


def table(judged: list[Judged]) -> str:
    """Precision by rule, and recall by what goes wrong, as Markdown."""
    told = [one for one in judged if one.effects is not None]
    return "\n".join((*_precision(told), "", *_recall(told), "", f"{len(told)} of {len(judged)} programs can be told."))


def _precision(told: list[Judged]) -> Iterator[str]:
    said = Counter(code for one in told for code in one.claims)
    untrue = Counter(code for one in told for code in one.untrue)
    yield from ("| rule | findings | true | precision |", "|---|---:|---:|---:|")
    for code, count in (*sorted(said.items()), ("all", said.total())):
        true = count - (untrue.total() if code == "all" else untrue[code])
        yield f"| {code} | {count} | {true} | {true / max(1, count):.3f} |"


def _recall(told: list[Judged]) -> Iterator[str]:
    yield from ("| what goes wrong | programs | found | recall |", "|---|---:|---:|---:|")
    kinds = [(str(effect), [one for one in told if effect in (one.effects or ())]) for effect in Effect]
    for name, wrong in (*kinds, ("any of these", [one for one in told if one.effects])):
        found = sum(not one.is_missed for one in wrong)
        yield f"| {name} | {len(wrong)} | {found} | {found / max(1, len(wrong)):.3f} |"


def results(judged: list[Judged], first: int) -> str:
    """The page of one measure: its command, then :func:`table`."""
    command = f"python -m tests.truth.judge --programs {len(judged)} --seed {first} --results tests/truth/RESULTS.md"
    libraries = " and ".join(f"{name} {version(name)}" for name in ("torch", "transformers"))
    return f"# Agreement with executed truth\n\n`{command}`, with {libraries}:\n\n{table(judged)}\n"


def _keep(one: Judged, folder: Path) -> None:
    kind = "untrue_" + "_".join(one.untrue) if one.untrue else "missed"
    effects = ", ".join(sorted(one.effects or ()))
    error = " ".join(one.error.split())
    header = f"# {effects or 'nothing goes wrong'}; reported: {', '.join(one.codes) or 'nothing'}\n# {error}\n"
    header += f"# {'; '.join(one.program.ingredients)}\n".replace("\n", " ").rstrip() + "\n"
    (folder / f"{kind}_{one.program.seed}.py").write_text(header + one.program.text)


@click.command()
@click.option("--programs", default=200, show_default=True, help="How many programs to write and run.")
@click.option("--seed", type=int, default=None, help="The first program's seed; drawn anew and printed by default.")
@click.option("--results", "page", type=click.Path(path_type=Path), help="File for the tables, with this command.")
@click.option("--disagreements", type=click.Path(path_type=Path), help="Folder for programs that are judged otherwise.")
def main(programs: int, seed: int | None, page: Path | None, disagreements: Path | None) -> None:
    """Write programs, run them, and compare ckpt-lint's findings with what happens."""
    first = random.randrange(10**9) if seed is None else seed
    click.echo(f"seed {first}")
    judged = []
    for one in judge((write_program(first + number) for number in range(programs)), Forked("training")):
        judged.append(one)
        if disagreements is not None and one.effects is not None and (one.untrue or one.is_missed):
            disagreements.mkdir(parents=True, exist_ok=True)
            _keep(one, disagreements)
    click.echo(table(judged))
    if page is not None:
        page.write_text(results(judged, first))


if __name__ == "__main__":
    main()
