"""How long ckpt-lint takes, as multiples of what `ast.parse` takes for the same files in the same round.

    python tests/benchmarks/lint_speed.py [--rounds 9] [--corpus FOLDER ...] [--torchfix PYTHON] [--against PYTHON]
        [--out FILE]

Whole processes, CPU time of all their children, order rotated every round, medians of the rounds' ratios. Our own
bytecode is compiled before the first round, as an installer does. The corpus is the installed sources of trl, peft and
accelerate unless folders are given; each file is copied into a folder of its own. `--torchfix` is a Python that has
TorchFix (it pins another libcst, so it needs an environment of its own); it runs once, beside a run of ours.
`--against` is a Python that has another version of ckpt-lint, which runs in the same rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

LINT = [sys.executable, "-m", "hf_ckpt.lint"]
PARSE = [
    sys.executable,
    "-c",
    "import ast, sys\nfor name in sys.argv[1:]:\n    with open(name, 'rb') as file:\n        ast.parse(file.read())",
]
#: What confirming findings costs, given as ``FILE:LINE``: libcst's tree of each file, and the places in each statement.
LIBCST = [
    sys.executable,
    "-c",
    """
import sys
import libcst as cst
from hf_ckpt.lint.fix.positions import Positions
lines = {}
for argument in sys.argv[1:]:
    name, _, line = argument.rpartition(":")
    lines.setdefault(name, []).append(int(line))
for name in lines:
    with open(name, encoding="utf-8") as file:
        text = file.read()
    positions = Positions(cst.parse_module(text), text)
    for line in lines[name]:
        positions.starting_at(line, 0)
""",
]
#: The goals of the project, by row: largest ratio to `ast.parse`.
GOALS = {
    "clean script": 1.8,
    "script with findings": 14.0,
    "cold corpus without libcst": 1.2,
    "warm corpus": 0.2,
}
#: What the rows of the other version end with.
_OTHER = ", other"
IN_USE = """
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def run_block(block, x):
    return checkpoint(block, x, use_reentrant=False)


def run_training(name, data):
    model = AutoModelForCausalLM.from_pretrained(name)
    kwargs = {"use_reentrant": False}
    args = TrainingArguments("out", activation_checkpointing=True, activation_checkpointing_kwargs=kwargs)
    Trainer(model, args, train_dataset=data).train()
"""
WRONG = "\nfrom torch.utils.checkpoint import checkpoint\ncheckpoint(print, 1)\n"


class Row(NamedTuple):
    """The medians of one command."""

    seconds: float
    #: To the row `ast.parse` of the same round.
    ratio: float


def cpu_seconds(command: list[str], cwd: str) -> float:
    """User and system time of ``command`` and its children, in seconds; findings (exit status 1) are fine."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    status = subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if status.returncode not in (0, 1):
        sys.exit(f"{' '.join(command[:4])} failed: {status.stderr.decode()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def median_ratios(rows: dict[str, Callable[[], float]], rounds: int) -> dict[str, Row]:
    """For each row the median seconds and the median of its ratio to the row ``ast.parse`` of the same round."""
    taken: dict[str, list[float]] = {name: [] for name in rows}
    names = list(rows)
    for round_number in range(rounds):
        turn = round_number % len(names)
        for name in names[turn:] + names[:turn]:
            taken[name].append(rows[name]())
    base = taken["ast.parse"]
    return {
        name: Row(statistics.median(times), statistics.median(t / b for t, b in zip(times, base, strict=True)))
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


def write_scripts(files: list[str], folder: str) -> dict[str, str]:
    """The paths of three scripts of about 500 lines, by row.

    One that speaks of checkpointing and is clean, the same with training code that uses it, and with a mistake.
    """
    texts = (_read(path) for path in files)
    sized = (text for text in texts if 400 < text.count("\n") < 600 and "gradient_checkpointing" in text)
    for text in sized:
        contents = {"clean script": text, "clean script in use": text + IN_USE, "script with findings": text + WRONG}
        paths = {name: os.path.join(folder, f"{name.replace(' ', '_')}.py") for name in contents}
        for name, path in paths.items():
            with open(path, "w", encoding="utf-8") as file:
                file.write(contents[name])
        if [bool(findings_in(path, folder)) for path in paths.values()] == [False, False, True]:
            return paths
    sys.exit("the corpus has no clean script of about 500 lines that speaks of checkpointing")


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def findings_in(path: str, cwd: str) -> list[dict[str, Any]]:
    """What ckpt-lint finds in a file or folder."""
    command = [*LINT, path, "--no-cache", "--output-format", "json"]
    found: list[dict[str, Any]] = json.loads(subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE).stdout)
    return found


def beside(commands: dict[str, list[str]], against: str | None) -> dict[str, list[str]]:
    """``commands``, and the same of the other version where there is one."""
    if against is None:
        return commands
    return commands | {f"{name}{_OTHER}": [against, *command[1:]] for name, command in commands.items()}


def folder_of(name: str, cwd: str) -> str:
    """Where a row runs: each version has a cache of its own."""
    if not name.endswith(_OTHER):
        return cwd
    os.makedirs(os.path.join(cwd, "other"), exist_ok=True)
    return os.path.join(cwd, "other")


def compare(title: str, files: list[str], ours: dict[str, list[str]], cwd: str, rounds: int) -> dict[str, Row]:
    """Print and give one table: ``ast.parse`` of ``files`` against the commands ``ours``."""
    rows: dict[str, Callable[[], float]] = {"ast.parse": lambda: cpu_seconds([*PARSE, *files], cwd)}
    for name, command in ours.items():
        rows[name] = lambda name=name, command=command: cpu_seconds(command, folder_of(name, cwd))  # type: ignore[misc]
    print(f"\n{title} ({len(files)} files, {sum(map(os.path.getsize, files)):,} bytes)")
    found = median_ratios(rows, rounds)
    for name, row in found.items():
        show(name, row)
    return found


def show(name: str, row: Row) -> None:
    """Print one row."""
    goal = f"   goal {GOALS[name]}" if name in GOALS else ""
    print(f"  {name:<28} {row.seconds * 1000:9.1f} ms CPU  x {row.ratio:6.2f}{goal}", flush=True)


def compare_corpus(files: list[str], folder: str, rounds: int, against: str | None) -> dict[str, Row]:
    """The corpus without and with a cache, and what is left of the first without what libcst costs."""
    corpus = os.path.join(folder, "corpus")
    for number, path in enumerate(files):
        os.makedirs(os.path.join(corpus, str(number)))
        shutil.copy(path, os.path.join(corpus, str(number)))
    wrong = sorted({f"{item['filename']}:{item['location']['row']}" for item in findings_in(corpus, folder)})
    ours = beside({"cold corpus": [*LINT, corpus, "--no-cache"], "warm corpus": [*LINT, corpus]}, against)
    for name in ours:
        if name.startswith("warm"):
            cpu_seconds(ours[name], folder_of(name, folder))  # fills the cache
    if wrong:
        ours |= {"libcst on files with findings": [*LIBCST, *wrong], "python": [sys.executable, "-c", "pass"]}
    found = compare("Corpus", python_files([corpus]), ours, folder, rounds)
    if wrong:
        parts = [found[name] for name in ("cold corpus", "libcst on files with findings", "python")]
        left = Row(*(cold - libcst + python for cold, libcst, python in zip(*parts, strict=True)))
        found["cold corpus without libcst"] = left
        show("cold corpus without libcst", left)
    return found


def compare_with_torchfix(python: str, corpus: str, cwd: str) -> dict[str, float]:
    """One run of TorchFix beside one of ours."""
    rival = cpu_seconds([python, "-m", "torchfix", "--select", "ALL", corpus], cwd)
    ours = cpu_seconds([*LINT, corpus, "--no-cache"], cwd)
    print(f"\nTorchFix takes {rival / ours:.1f} times as long ({rival:.1f} s and {ours:.1f} s CPU)")
    return {"torchfix seconds": rival, "ckpt-lint seconds": ours, "ratio": rival / ours}


def rounded(value: Any) -> Any:
    """``value`` for the record: four digits."""
    if isinstance(value, Row):
        return {"cpu seconds": round(value.seconds, 4), "ratio to ast.parse": round(value.ratio, 3)}
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    return round(value, 3) if isinstance(value, float) else value


def versions_of(torchfix: str | None) -> dict[str, str]:
    """What was measured, and on what."""
    found = {"python": platform.python_version()}
    for name in ("hf-ckpt", "libcst", "trl", "peft", "accelerate"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    if torchfix is not None:
        code = "from importlib.metadata import version; print(version('torchfix'))"
        found["torchfix"] = subprocess.run([torchfix, "-c", code], capture_output=True, text=True).stdout.strip()
    return found


def revision_of(python: str) -> str:
    """The commit of the checkout whose ckpt-lint ``python`` runs."""
    where = "import hf_ckpt.lint, os; print(os.path.dirname(hf_ckpt.lint.__file__))"
    folder = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True).stdout.strip()
    return subprocess.run(["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Run all comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--corpus", nargs="*", default=None, help="folders with Python files")
    parser.add_argument("--torchfix", help="a Python with TorchFix installed")
    parser.add_argument("--against", help="a Python with another version of ckpt-lint")
    parser.add_argument("--out", help="a JSON file for the results")
    options = parser.parse_args()
    files = python_files(options.corpus or installed_sources())
    with tempfile.TemporaryDirectory() as folder:
        # Not what the environment of a developer says: an installed package has its bytecode.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(folder, "bytecode")
        result: dict[str, Any] = {"corpus": {"files": len(files), "bytes": sum(map(os.path.getsize, files))}}
        for name, path in write_scripts(files, folder).items():
            commands = beside({name: [*LINT, path]}, options.against)
            result |= compare(name.capitalize(), [path], commands, folder, options.rounds)
        del result["ast.parse"]
        result |= compare_corpus(files, folder, max(options.rounds // 3, 1), options.against)
        if options.torchfix:
            result["torchfix"] = compare_with_torchfix(options.torchfix, os.path.join(folder, "corpus"), folder)
    if options.out:
        record = {
            "command": f"python tests/benchmarks/lint_speed.py --rounds {options.rounds}"
            + (" --corpus FOLDER ..." if options.corpus else "")
            + (" --torchfix PYTHON" if options.torchfix else "")
            + (" --against PYTHON" if options.against else ""),
            "device": f"{os.cpu_count()}-core {platform.machine()} CPU, CPU seconds of whole processes",
            "versions": versions_of(options.torchfix),
            "against": options.against and revision_of(options.against),
            "goals": GOALS,
            "result": rounded(result),
        }
        with open(options.out, "w", encoding="utf-8") as file:
            file.write(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
