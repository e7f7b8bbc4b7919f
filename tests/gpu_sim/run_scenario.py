"""Runs one scenario in a process on a simulated card and prints what it returns as JSON, on the last line."""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings


def main(name: str, arguments: list[str]) -> None:
    """Run ``scenarios/NAME.py``."""
    warnings.simplefilter("ignore")
    found = importlib.import_module(f"tests.gpu_sim.scenarios.{name}").main(arguments)
    print(json.dumps(found), flush=True)
    # A backward leaves its context with autograd's thread of the card (torch/autograd/graph.py, ``_stash_obj_in_tls``).
    # Where the process ends before that thread drops it, it waits for a lock that is gone, and terminate is called.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
