"""``python -m tests.faults --injections N --seed S``: draw and judge so many faults, and print those that went wrong."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections import Counter

from .draw import injections
from .surroundings import own_caches


def main() -> int:
    """Exit with 1 when an injection went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--injections", type=int, default=200, metavar="N")
    parser.add_argument("--seed", type=int, default=None, help="drawn when it is not given")
    parser.add_argument("--start", type=int, default=0, help="the number of the first one, to repeat it alone")
    parser.add_argument("--only", default="", metavar="NAME", help="part of the name of the scenarios to draw from")
    parser.add_argument("--verbose", action="store_true", help="print those that went right too")
    options = parser.parse_args()
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    tried, wrong = Counter[str](), 0
    with own_caches():
        for injection in injections(options.injections, seed, start=options.start, only=options.only):
            tried[injection.scenario] += 1
            wrong += bool(injection.problems)
            if injection.problems or options.verbose:
                print(injection, flush=True)
    for scenario, count in tried.most_common():
        print(f"{count:6} {scenario}")
    print(f"{tried.total()} injections with seed {seed}, {wrong} went wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
