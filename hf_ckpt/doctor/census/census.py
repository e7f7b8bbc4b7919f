"""What held the memory when it ran out: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..place import Place


class Kind(StrEnum):
    """What bytes are for."""

    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"
    OTHER_MODELS = "other models"
    BOUNDARIES = "layer inputs"
    LOGITS = "logits and loss"
    KEPT = "kept activations"
    OTHER_GRAPHS = "graphs of earlier forwards"
    PREDICTIONS = "predictions of the evaluation"
    NAMED = "held by name"
    PASSING = "tensors in use"
    UNSEEN = "temporaries"


@dataclass(frozen=True, slots=True)
class Holding:
    """Something with a name that holds tensors.

    Attributes:
        name: What the user's code calls it.
        count: How many tensors.
        nbytes: Bytes of theirs that are not counted for anything else.
        graph_bytes: Bytes that graphs of earlier forwards keep because of it.
        place: The line that adds to it, where one line does.
    """

    name: str
    count: int
    nbytes: int
    graph_bytes: int
    place: Place | None

    @property
    def all_bytes(self) -> int:
        """Bytes that are held because of it."""
        return self.nbytes + self.graph_bytes


@dataclass(frozen=True, slots=True)
class Census:
    """Bytes on one device by what they are for; each storage counts once.

    Attributes:
        bytes_of: Bytes by kind.
        holdings: What the user's code holds by name, the largest first.
        earlier: How many forwards of earlier steps still have a graph that holds something.
        optimizer_to_come: Bytes of optimizer state that the next step makes.
        gradients_to_come: Bytes of gradients that this backward makes.
    """

    bytes_of: dict[Kind, int]
    holdings: tuple[Holding, ...] = ()
    earlier: int = 0
    optimizer_to_come: int = 0
    gradients_to_come: int = 0
