"""``python -m tests.sweep``: every class of the installed transformers under every policy (hours; resumable)."""

from __future__ import annotations

import argparse
import json
import logging
import math
import resource
import time
import warnings
from pathlib import Path

from .classes import Subject, subjects
from .judge import GOOD
from .page import write_page
from .run import read_results, sweep


def main() -> None:
    """Sweep what has no result yet, then write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.sweep", description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("tests/sweep/results.jsonl"))
    parser.add_argument("--page", type=Path, default=Path("hf_ckpt/ARCHITECTURES.md"))
    parser.add_argument("--only", nargs="*", help="classes to run again, whatever stands in the results")
    parser.add_argument("--failed", action="store_true", help="run again what did not pass everything")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no other class after so long")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    chosen, end = _chosen(arguments), time.monotonic() + arguments.seconds
    with arguments.results.open("a") as file:
        spent = _children_seconds()
        for result in sweep(chosen):
            file.write(json.dumps(result) + "\n")
            file.flush()
            spent, before = _children_seconds(), spent
            print(result["model_class"], f"({spent - before:.1f} CPU-seconds)", _summary(result), flush=True)
            if time.monotonic() > end:
                break
    write_page(arguments.page, read_results(arguments.results), len(subjects()))


def _children_seconds() -> float:
    """CPU time of the classes judged so far; each has a process of its own."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _chosen(arguments: argparse.Namespace) -> list[Subject]:
    known = read_results(arguments.results)
    everything = subjects()
    if arguments.only:
        return [subject for subject in everything if subject.model_class in arguments.only]
    if arguments.failed:
        return [s for s in everything if s.model_class in known and not _passed(known[s.model_class])]
    return [s for s in _each_config_first(everything) if s.model_class not in known]


def _each_config_first(everything: list[Subject]) -> list[Subject]:
    """A sweep that is cut short has seen most architectures."""
    first = {subject.config_class: subject for subject in reversed(everything)}
    return sorted(everything, key=lambda subject: subject is not first[subject.config_class])


def _passed(result: dict[str, object]) -> bool:
    policies = result["policies"]
    assert isinstance(policies, dict)
    return bool(result["built"]) and all(policy["verdict"] in GOOD for policy in policies.values())


def _summary(result: dict[str, object]) -> str:
    policies = result["policies"]
    assert isinstance(policies, dict)
    if not result["built"]:
        return f"not built: {result['reason']}"
    failed = {name: f"{p['verdict']}: {p['reason']}"[:160] for name, p in policies.items() if p["verdict"] not in GOOD}
    return "all pass" if not failed else str(failed)


if __name__ == "__main__":
    main()
