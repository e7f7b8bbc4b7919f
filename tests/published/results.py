"""The predictions of the last run, in ``results.json``: the page is written from them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .predict import Prediction

if TYPE_CHECKING:
    from .data import Source

_FILE = Path(__file__).with_name("results.json")


@dataclass(frozen=True)
class Results:
    """Bytes of a logit in the older loss, and the prediction of every pair by its key."""

    older_logit: float
    predictions: dict[str, Prediction]

    def older_logit_of(self, source: Source) -> float | None:
        """Bytes of a logit where measurements of this source were taken with the older loss."""
        return self.older_logit if source.older_loss else None


def read_results() -> Results:
    """What the last run found."""
    found = json.loads(_FILE.read_text(encoding="utf-8"))
    return Results(found["older_logit"], {key: Prediction(**entry) for key, entry in found["predictions"].items()})


def write_results(results: Results) -> None:
    """Keep what was found."""
    _FILE.write_text(json.dumps(asdict(results), indent=1) + "\n", encoding="utf-8")
