"""``python -m tests.soak --steps N``: train so many steps under changing policies, and say what grew."""

from __future__ import annotations

import argparse
import gc
import logging
import sys

import torch

from .run import Counts, soak


def main() -> int:
    """Exit with 1 when the weights are not those of the untouched model."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--steps", type=int, default=5000, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.getLogger("hf_ckpt").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    found = soak(options.steps, options.seed)
    print(f"{found.steps} steps, {found.evaluations} evaluations, {found.generations} generations")
    for what in Counts.__slots__:
        values = [getattr(counts, what) for counts in found.counts]
        print(
            f"{what:9} {values[len(values) // 4]:8} after a quarter {values[-1]:8} at the end {found.growth(what):+.4f} a step"
        )
    print(f"{found.recipes_a_step:.4f} recipes a step at most")
    print(f"final weights {'equal' if found.equal_weights else 'DIFFER'}")
    return not found.equal_weights


if __name__ == "__main__":
    sys.exit(main())
