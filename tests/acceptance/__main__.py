"""``python -m tests.acceptance``: every case in a process of its own, then the page (minutes)."""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
import warnings
from dataclasses import asdict
from pathlib import Path

import torch.distributed as dist

from .cases import CASES, Case
from .judge import Cell, judge
from .page import write_page

_MARK = "CELLS "
_LIMIT_SECONDS = 900
#: ``ValueError: ...``, as a traceback ends, with the rank that a launcher may put before it.
_ERROR = re.compile(r"(\[rank\d+\]: *)?[\w.]+(Error|Exception)\b")


def main() -> None:
    """Run the cases, or one of them in this process."""
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance", description=__doc__)
    parser.add_argument("--page", type=Path, default=Path("hf_ckpt/BUDGETS.md"))
    parser.add_argument("--only", nargs="*", default=[], help="cases to run again; the others stay as they were")
    parser.add_argument("--results", type=Path, default=Path("tests/acceptance/results.json"))
    parser.add_argument("--here", type=int, help="run the case of this number in this process, and print its cells")
    arguments = parser.parse_args()
    if arguments.here is not None:
        _run_here(CASES[arguments.here])
        return
    rows = json.loads(arguments.results.read_text()) if arguments.results.exists() else {}
    for number, case in enumerate(CASES):
        if not arguments.only or case.name in arguments.only:
            rows[case.name] = _run_apart(number, case)
            print(case.name, rows[case.name], flush=True)
            arguments.results.write_text(json.dumps(rows, indent=1) + "\n")
    write_page(arguments.page, {case.name: _cells(rows.get(case.name, "not asked for")) for case in CASES})


def _cells(row: list[dict[str, object]] | str) -> list[Cell] | str:
    return row if isinstance(row, str) else [Cell(**cell) for cell in row]  # type: ignore[arg-type]


def _run_apart(number: int, case: Case) -> list[dict[str, object]] | str:
    missing = [name for name in case.needs if importlib.util.find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} is not installed"
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(case.ranks)] if case.ranks else []
    )
    command = [sys.executable, *launcher, "-m", "tests.acceptance", "--here", str(number)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        return f"it did not end in {_LIMIT_SECONDS} seconds"
    for line in done.stdout.splitlines():
        if line.startswith(_MARK):
            found: list[dict[str, object]] = json.loads(line.removeprefix(_MARK))
            return found
    return "it ended with " + _error_in(done.stderr)


def _error_in(stderr: str) -> str:
    """The first error that a process told, not the launcher's last word on it; else the last lines."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    told = [line for line in lines if _ERROR.match(line)]
    return (told[0] if told else " / ".join(lines[-3:]) or "no message")[:400]


def _run_here(case: Case) -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    if case.ranks:
        dist.init_process_group("gloo")
    cells = judge(case)
    if not case.ranks or dist.get_rank() == 0:
        print(_MARK + json.dumps([asdict(cell) for cell in cells]), flush=True)
    if case.ranks:
        dist.barrier()
        os._exit(0)  # gloo's threads may abort an interpreter that ends while they run


if __name__ == "__main__":
    main()
