"""How long ckpt-lint takes, as multiples of what `ast.parse` takes for the same files in the same round.

    python tests/benchmarks/lint_speed.py [--rounds 9] [--corpus FOLDER ...] [--torchfix PYTHON]

Whole processes, CPU time of all their children, order rotated every round, medians of the rounds' ratios. The corpus is
the installed sources of trl, peft and accelerate unless folders are given. `--torchfix` is a Python that has TorchFix
(it pins another libcst, so it needs an environment of its own); it runs once, beside a run of ours.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LINT = [sys.executable, "-m", "hf_ckpt.lint"]
PARSE = [
    sys.executable,
    "-c",
    "import ast, sys\nfor name in sys.argv[1:]:\n    with open(name, 'rb') as file:\n        ast.parse(file.read())",
]
#: The goals of the project, by row: largest ratio to `ast.parse`.
GOALS = {"clean script": 1.8, "script with findings": 14.0, "cold corpus": 1.2, "warm corpus": 0.2}


def cpu_seconds(command: list[str], cwd: str) -> float:
    """User and system time of ``command`` and its children, in seconds; findings (exit status 1) are fine."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    status = subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if status.returncode not in (0, 1):
        sys.exit(f"{' '.join(command[:4])} failed: {status.stderr.decode()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def median_ratios(rows: dict[str, Callable[[], float]], rounds: int) -> dict[str, tuple[float, float]]:
    """For each row the median seconds and the median of its ratio to the row ``ast.parse`` of the same round."""
    taken: dict[str, list[float]] = {name: [] for name in rows}
    names = list(rows)
    for round_number in range(rounds):
        turn = round_number % len(names)
        for name in names[turn:] + names[:turn]:
            taken[name].append(rows[name]())
    base = taken["ast.parse"]
    return {
        name: (statistics.median(times), statistics.median(t / b for t, b in zip(times, base, strict=True)))
        for name, times in taken.items()
    }


def installed_sources() -> list[str]:
    """The folders of the packages that make up the default corpus."""
    specs = [find_spec(name) for name in ("trl", "peft", "accelerate")]
    return [folder for spec in specs if spec for folder in spec.submodule_search_locations or ()]


def python_files(folders: list[str]) -> list[str]:
    """All Python files below ``folders``."""
    found = [os.path.join(top, name) for folder in folders for top, _, names in os.walk(folder) for name in names]
    return sorted(name for name in found if name.endswith(".py"))


def pick_scripts(files: list[str]) -> tuple[str, str]:
    """A script of about 500 lines that uses the API and is clean, and the same script with a mistake in it."""
    for path in files:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if 400 < text.count("\n") < 600 and "gradient_checkpointing" in text and is_clean(path):
            return text, text + "\nfrom torch.utils.checkpoint import checkpoint\ncheckpoint(print, 1)\n"
    sys.exit("the corpus has no clean script of about 500 lines that uses checkpointing")


def is_clean(path: str) -> bool:
    """Whether ckpt-lint finds nothing in the file."""
    return subprocess.run([*LINT, path], stdout=subprocess.DEVNULL).returncode == 0


def compare(title: str, files: list[str], ours: dict[str, list[str]], cwd: str, rounds: int) -> None:
    """Print one table: ``ast.parse`` of ``files`` against the commands ``ours``."""
    rows: dict[str, Callable[[], float]] = {"ast.parse": lambda: cpu_seconds([*PARSE, *files], cwd)}
    for name, command in ours.items():
        rows[name] = lambda command=command: cpu_seconds(command, cwd)  # type: ignore[misc]
    print(f"\n{title} ({len(files)} files, {sum(map(os.path.getsize, files)):,} bytes)")
    for name, (seconds, ratio) in median_ratios(rows, rounds).items():
        goal = f"   goal {GOALS[name]}" if name in GOALS else ""
        print(f"  {name:<24} {seconds * 1000:9.1f} ms CPU  x {ratio:6.2f}{goal}")


def main() -> None:
    """Run all comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--corpus", nargs="*", default=None, help="folders with Python files")
    parser.add_argument("--torchfix", help="a Python with TorchFix installed")
    options = parser.parse_args()
    files = python_files(options.corpus or installed_sources())
    with tempfile.TemporaryDirectory() as folder:
        clean, wrong = os.path.join(folder, "clean.py"), os.path.join(folder, "wrong.py")
        for path, text in zip((clean, wrong), pick_scripts(files), strict=True):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        compare("One clean script", [clean], {"clean script": [*LINT, clean]}, folder, options.rounds)
        compare("One script with findings", [wrong], {"script with findings": [*LINT, wrong]}, folder, options.rounds)
        corpus = os.path.join(folder, "corpus")
        for number, path in enumerate(files):
            os.makedirs(os.path.join(corpus, str(number)))
            shutil.copy(path, os.path.join(corpus, str(number)))
        copies = python_files([corpus])
        cpu_seconds([*LINT, corpus], folder)  # fills the cache
        rows = {"cold corpus": [*LINT, corpus, "--no-cache"], "warm corpus": [*LINT, corpus]}
        compare("Corpus", copies, rows, folder, max(options.rounds // 3, 1))
        if options.torchfix:
            rival = cpu_seconds([options.torchfix, "-m", "torchfix", "--select", "ALL", corpus], folder)
            ours = cpu_seconds([*LINT, corpus, "--no-cache"], folder)
            print(f"\nTorchFix takes {rival / ours:.1f} times as long ({rival:.1f} s and {ours:.1f} s CPU)")


if __name__ == "__main__":
    main()
