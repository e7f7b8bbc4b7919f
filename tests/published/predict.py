"""What `hf-ckpt plan` says of a pair: the command itself, on a folder with the model's config."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from hf_ckpt.cli import command
from hf_ckpt.head.options import BYTES_PER_LOGIT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .data import Pair

#: Memory may be off by this share of what is published, time by this share of a step.
MEMORY_BOUND, TIME_BOUND = 0.10, 0.05
NOT_EXPLAINED = "not explained"


@dataclass(frozen=True, slots=True)
class Prediction:
    """Bytes, with the older loss (None where that is not asked for), and the share of a step that recomputing adds."""

    nbytes: int
    with_older_loss: int | None
    added: float | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A pair with its prediction; ``memory_off`` is a share of what is published, ``time_off`` one of a step.

    ``simulated`` are the bytes, of the kind that is published, that a simulated card gave to the same training.
    """

    pair: Pair
    prediction: Prediction
    simulated: int | None = None

    @property
    def memory_off(self) -> float | None:
        """By how much the bytes differ."""
        return self._off(self.prediction.nbytes)

    @property
    def older_off(self) -> float | None:
        """By how much they differ with the loss that the measurement was taken with; None where that is today's."""
        nbytes = self.prediction.with_older_loss
        return None if nbytes is None else self._off(nbytes)

    @property
    def simulated_off(self) -> float | None:
        """By how much they differ on a simulated card; None where it did not run there."""
        return None if self.simulated is None else self._off(self.simulated)

    def _off(self, nbytes: int) -> float | None:
        memory = self.pair.memory
        return None if memory is None else nbytes / (memory * self.pair.unit_bytes) - 1

    @property
    def time_off(self) -> float | None:
        """By how much of a step the added time differs."""
        added = self.pair.added
        return None if added is None else (self.prediction.added or 0.0) - added

    @property
    def memory_holds(self) -> bool:
        """Whether the bytes are within the bound, or round to what is published."""
        return self._holds(self.prediction.nbytes)

    @property
    def older_holds(self) -> bool:
        """The same of the bytes with the older loss."""
        nbytes = self.prediction.with_older_loss
        return nbytes is not None and self._holds(nbytes)

    @property
    def simulated_holds(self) -> bool:
        """The same of the bytes that a simulated card gave."""
        return self.simulated is not None and self._holds(self.simulated)

    def _holds(self, nbytes: int) -> bool:
        pair, off = self.pair, self._off(nbytes)
        if off is None or abs(off) <= MEMORY_BOUND:
            return True
        return pair.whole and abs(nbytes / pair.unit_bytes - (pair.memory or 0)) <= 0.5

    @property
    def time_holds(self) -> bool:
        """Whether the added time is within the bound."""
        return self.time_off is None or abs(self.time_off) <= TIME_BOUND

    @property
    def cause(self) -> str:
        """Why the row is a miss, as far as anybody knows."""
        if self.pair.cause:
            return self.pair.cause
        if self.simulated_holds and self.time_holds:
            return "plans count what is alive; with what the allocator keeps it holds, as the simulated card shows"
        return "it holds with the loss of its time" if self.older_holds and self.time_holds else NOT_EXPLAINED

    @property
    def holds(self) -> bool:
        """Whether both are."""
        return self.memory_holds and self.time_holds


def write_configs(folder: Path, configs: Mapping[str, Mapping[str, Any]]) -> None:
    """A folder with a ``config.json`` for every model."""
    for name, config in configs.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))


def predict(pair: Pair, folder: Path, older_logit: float | None = None) -> Prediction:
    """Plan a pair; ``folder`` has the configs, ``older_logit`` is the bytes of a logit in the loss it was taken with."""
    found = _forecast(pair, pair.plan, folder)
    nbytes = int(found[pair.field])
    if pair.less is not None:
        nbytes -= int(_forecast(pair, pair.less, folder)[pair.field])
    older = None if older_logit is None else nbytes + _more_for_logits(pair, found, folder, older_logit)
    return Prediction(nbytes, older, found["added_share"])


def _more_for_logits(pair: Pair, found: Mapping[str, Any], folder: Path, older_logit: float) -> int:
    """What the older loss takes more, at the moment of the loss, where these plans peak."""
    vocabulary: int = json.loads((folder / pair.model / "config.json").read_text())["vocab_size"]
    return int((older_logit - BYTES_PER_LOGIT) * found["batch"] * found["length"] * vocabulary)


def _forecast(pair: Pair, options: str, folder: Path) -> dict[str, Any]:
    arguments = ["plan", "--json", "--model", str(folder / pair.model), *shlex.split(options)]
    done = CliRunner(catch_exceptions=False).invoke(command, arguments)
    if done.exit_code not in (0, 1):  # 1: it does not fit the card
        raise RuntimeError(f"hf-ckpt {shlex.join(arguments)} ended with {done.exit_code}: {done.output[-500:]}")
    (found,) = json.loads(done.stdout)["forecasts"]
    if found["error"] is not None:
        raise RuntimeError(f"hf-ckpt {shlex.join(arguments)}: {found['error']}")
    return dict(found)
