"""The predictions of the last run, in ``results.json``, and of the simulated cards: the page is written from them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .predict import Prediction, Verdict

if TYPE_CHECKING:
    from .data import Pair, Source

_FILE = Path(__file__).with_name("results.json")
#: What `python -m tests.gpu_sim.published` found.
SIMULATED = Path(__file__).with_name("simulated.json")
_KINDS = {"reserved": "reserved", "video memory": "card", "allocated": "allocated"}


@dataclass(frozen=True)
class Results:
    """Bytes of a logit in the older loss, and the prediction of every pair by its key."""

    older_logit: float
    predictions: dict[str, Prediction]

    def older_logit_of(self, source: Source) -> float | None:
        """Bytes of a logit where measurements of this source were taken with the older loss."""
        return self.older_logit if source.older_loss else None


def read_simulated() -> dict[str, dict[str, int]]:
    """The bytes of the rows that ran on simulated cards, by key, then by kind."""
    found: dict[str, dict[str, int]] = json.loads(SIMULATED.read_text(encoding="utf-8")) if SIMULATED.exists() else {}
    return found


def verdicts_of(source: Source, results: Results) -> list[Verdict]:
    """Its pairs with all that was found."""
    simulated = read_simulated()
    return [Verdict(pair, results.predictions[pair.key], _simulated(pair, simulated)) for pair in source.pairs]


def _simulated(pair: Pair, simulated: dict[str, dict[str, int]]) -> int | None:
    wanted = [pair.key] if pair.less is None else [pair.key, f"{pair.key} less"]
    if pair.counted not in _KINDS or any(key not in simulated for key in wanted):
        return None
    nbytes, *less = (simulated[key][_KINDS[pair.counted]] for key in wanted)
    return nbytes - sum(less)


def read_results() -> Results:
    """What the last run found."""
    found = json.loads(_FILE.read_text(encoding="utf-8"))
    return Results(found["older_logit"], {key: Prediction(**entry) for key, entry in found["predictions"].items()})


def write_results(results: Results) -> None:
    """Keep what was found."""
    _FILE.write_text(json.dumps(asdict(results), indent=1) + "\n", encoding="utf-8")
