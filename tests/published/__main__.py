"""``python -m tests.published``: plan every published pair, then write the page (minutes)."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from .data import read_configs, read_sources
from .older_loss import bytes_per_logit
from .page import write_page
from .predict import NOT_EXPLAINED, judge, write_configs


def main() -> None:
    """Exit code 1 when a miss has no cause in the file."""
    parser = argparse.ArgumentParser(prog="python -m tests.published", description=__doc__)
    parser.add_argument("--page", type=Path, default=Path("hf_ckpt/PUBLISHED.md"))
    arguments = parser.parse_args()
    verdicts = {}
    older = bytes_per_logit()
    with tempfile.TemporaryDirectory() as folder:
        write_configs(Path(folder), read_configs())
        for source in read_sources():
            verdicts[source] = []
            for pair in source.pairs:
                verdict = judge(pair, Path(folder), older if source.older_loss else None)
                verdicts[source].append(verdict)
                print(pair.case, verdict.memory_off, verdict.older_off, verdict.time_off, flush=True)
    write_page(arguments.page, verdicts, older)
    sys.exit(any(not v.holds and v.cause == NOT_EXPLAINED for group in verdicts.values() for v in group))


if __name__ == "__main__":
    main()
