"""``python -m tests.stock TESTS``: transformers' own checkpointing tests on tiny models, its switch and ours (minutes).

TESTS is the ``tests`` folder of transformers' source distribution (``pip download --no-deps --no-binary :all:
transformers==VERSION``). It has the mixins, which need the package ``parameterized``; the sweep's generator makes the
models and inputs that they ask for.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from pathlib import Path

import torch

from .families import FAMILIES
from .judge import SWITCHES, TESTS, judge
from .mixins import load_mixin


def main() -> None:
    """Print each test that fails, and how many pass under what."""
    parser = argparse.ArgumentParser(prog="python -m tests.stock", description=__doc__)
    parser.add_argument("tests", type=Path)
    parser.add_argument("classes", nargs="*", default=FAMILIES, help="model classes; one of each of 30 families else")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    mixin = load_mixin(arguments.tests)
    passed, families, ran = dict.fromkeys(SWITCHES, 0), 0, 0
    for name in arguments.classes:
        verdicts = judge(name, mixin)
        families += 1
        ran += len(TESTS)
        for verdict in verdicts:
            passed[verdict.switch] += verdict.passed
            if not verdict.passed:
                print(name, verdict.test, f"[{verdict.switch}]", verdict.reason, flush=True)
    counts = ", ".join(f"{count} under {switch}" for switch, count in passed.items())
    print(f"of {ran} tests of {families} families pass: {counts}")


if __name__ == "__main__":
    main()
