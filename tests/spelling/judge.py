"""What ckpt-lint loses, or finds wrongly, where the examples of its pages are spelled otherwise.

    python -m tests.spelling.judge [--write] [NAME ...]

NAME is a spelling, a rule's code, or a part of an example's id; without any, all are judged. `--write` keeps the table
and the list in `RESULTS.md`, which the tests compare with. Nobody tunes the programs: they are the pages' own, rewritten.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple
from unittest import mock

from hf_ckpt.lint.analysis import confirm
from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.fix.places import Places
from hf_ckpt.lint.project.local_modules import LocalModules
from hf_ckpt.lint.rules import load_rules

from . import spellings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

sys.path.insert(0, str(Path(__file__).parents[1] / "lint"))
from rule_pages import Example, examples

#: Places for the same literals: each example is judged with two of them.
_IN_TURN = (
    "from_constants",
    "from_a_dict",
    "from_a_namespace",
    "from_a_dataclass",
    "from_a_class",
    "from_merged_dicts",
    "from_an_easydict",
)
RESULTS = Path(__file__).with_name("RESULTS.md")
_ON = {rule.code for rule in load_rules() if rule.default}


class Case(NamedTuple):
    """An example in another spelling."""

    example: Example
    spelling: str
    #: The rules that were silent in it, and those that only spoke there.
    lost: tuple[str, ...]
    extra: tuple[str, ...]

    @property
    def line(self) -> str:
        """How the list of differences names it; empty where there is none."""
        marks = [f"-{code}" for code in self.lost] + [f"+{code}" for code in self.extra]
        return f"{self.spelling}: {self.example.id} {' '.join(marks)}" if marks else ""


def cases(wanted: Iterable[str] = (), part: tuple[int, int] = (0, 1)) -> Iterator[Case]:
    """Every example of a page in every spelling that fits it.

    Args:
        wanted: Names of spellings, codes of rules or parts of ids; nothing for all.
        part: Which one of how many parts of the whole.
    """
    names = spellings.names()
    chosen = set(wanted)
    only = [name for name in names if name in chosen] or names
    parts = chosen.difference(names)
    number = 0
    for at, example in enumerate((*examples("Bad"), *examples("Good"))):
        if example.filename != "example.py" or (parts and not any(it in example.id for it in parts)):
            continue
        before = None
        for name in only:
            if name in _IN_TURN and (_IN_TURN.index(name) + at) % len(_IN_TURN) > 1:
                continue
            number += 1
            if number % part[1] != part[0]:
                continue
            found = spellings.spelled(example.code, name)
            if found is not None:
                # A third of the time would go to libcst, for fixes that nobody reads here.
                with mock.patch.object(confirm, "_parsed", Places):
                    before = before or codes({"example.py": example.code}, example.rule.code)
                    after = codes(found.files, example.rule.code)
                lost, extra = (sorted(it) for it in (before.keys() - after.keys(), after.keys() - before.keys()))
                yield Case(example, name, tuple(lost), tuple(extra))


def codes(files: dict[str, str], own: str) -> Counter[str]:
    """The codes of what ckpt-lint finds in `example.py`, by those that are on and the example's own rule."""
    wanted = (_ON | {own}).__contains__
    if len(files) == 1:
        return Counter(finding.code for finding in check_source(files["example.py"], "example.py", select=wanted))
    with TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        main = str(Path(folder, "example.py"))
        find = LocalModules(main)
        given = check_source(files["example.py"], main, select=wanted, find_module=find, reported=lambda _: True)
        return Counter(finding.code for finding in given)


def listed() -> set[str]:
    """The differences that are known, as `RESULTS.md` has them."""
    return {line[2:] for line in RESULTS.read_text(encoding="utf-8").splitlines() if line.startswith("- ")}


def table(found: list[Case]) -> str:
    """How many examples keep what is found in them, by spelling."""
    counts: dict[str, dict[str, list[int]]] = defaultdict(lambda: {"Bad": [0, 0], "Good": [0, 0]})
    for case in found:
        count = counts[case.spelling][case.example.section]
        count[0] += not case.line
        count[1] += 1
    every = {side: [sum(row[side][at] for row in counts.values()) for at in (0, 1)] for side in ("Bad", "Good")}
    rows = [(name.replace("_", " "), row) for name, row in sorted(counts.items())] + [("**all**", every)]
    lines = [
        f"| {name} | {row['Bad'][0]} of {row['Bad'][1]} | {row['Good'][0]} of {row['Good'][1]} |" for name, row in rows
    ]
    return "\n".join(["| spelling | mistakes kept | right examples as before |", "|---|---|---|", *lines])


def main() -> None:
    """Judge, and print or keep what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--write", action="store_true", help="keep the result in RESULTS.md")
    options = parser.parse_args()
    found = [*cases(options.names)]
    differences = [f"- {case.line}" for case in found if case.line]
    text = f"{table(found)}\n\n## Differences\n\n`-` was found before, `+` is found in this spelling alone.\n\n"
    text += "\n".join(differences) + "\n"
    print(text)
    if options.write:
        head = "# The examples of the rules' pages, spelled otherwise\n\nGenerated by `python -m tests.spelling.judge --write`.\n\n"
        RESULTS.write_text(head + text, encoding="utf-8")


if __name__ == "__main__":
    main()
