"""``python -m tests.published``: plan every published pair, then write the page (minutes)."""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from .data import read_configs, read_sources
from .page import page
from .predict import NOT_EXPLAINED, predict, write_configs
from .results import Results, read_results, verdicts_of, write_results

if TYPE_CHECKING:
    from .data import Pair


def main() -> None:
    """Exit code 1 when a miss has no cause in the file."""
    parser = argparse.ArgumentParser(prog="python -m tests.published", description=__doc__)
    parser.add_argument("--page", type=Path, default=Path("hf_ckpt/PUBLISHED.md"))
    parser.add_argument("--only", nargs="*", help="sources to plan again, by the start of their names; none: no source")
    arguments = parser.parse_args()
    results = _plan_again(arguments.only)
    arguments.page.write_text(page(results), encoding="utf-8")
    verdicts = [verdict for source in read_sources() for verdict in verdicts_of(source, results)]
    sys.exit(any(not verdict.holds and verdict.cause == NOT_EXPLAINED for verdict in verdicts))


def _plan_again(only: list[str] | None) -> Results:
    """What was found before, with the predictions of these sources, or of all, made anew."""
    results = _from_nothing() if only is None else read_results()
    with tempfile.TemporaryDirectory() as folder:
        write_configs(Path(folder), read_configs())
        for source in read_sources():
            asked = only is None or any(source.name.startswith(start) for start in only)
            for pair in source.pairs if asked else ():
                results.predictions[pair.key] = predict(pair, Path(folder), results.older_logit_of(source))
                print(pair.key, asdict(results.predictions[pair.key]), flush=True)
    _drop_gone(results, [pair for source in read_sources() for pair in source.pairs])
    write_results(results)
    return results


def _from_nothing() -> Results:
    # Rewriting the page from results needs no torch.
    from .older_loss import bytes_per_logit

    return Results(bytes_per_logit(), {})


def _drop_gone(results: Results, pairs: list[Pair]) -> None:
    for key in results.predictions.keys() - {pair.key for pair in pairs}:
        del results.predictions[key]


if __name__ == "__main__":
    main()
