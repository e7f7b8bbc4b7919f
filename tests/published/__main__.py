"""``python -m tests.published``: plan every published pair, then write the page (minutes)."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from .data import read_configs, read_sources
from .page import write_page
from .predict import judge, write_configs


def main() -> None:
    """Exit code 1 when a miss has no cause in the file."""
    parser = argparse.ArgumentParser(prog="python -m tests.published", description=__doc__)
    parser.add_argument("--page", type=Path, default=Path("hf_ckpt/PUBLISHED.md"))
    arguments = parser.parse_args()
    verdicts = {}
    with tempfile.TemporaryDirectory() as folder:
        write_configs(Path(folder), read_configs())
        for source in read_sources():
            verdicts[source] = []
            for pair in source.pairs:
                verdict = judge(pair, Path(folder))
                verdicts[source].append(verdict)
                print(source.name, pair.case, verdict.prediction, verdict.memory_off, verdict.time_off, flush=True)
    write_page(arguments.page, verdicts)
    sys.exit(any(not v.holds and not v.pair.cause for group in verdicts.values() for v in group))


if __name__ == "__main__":
    main()
