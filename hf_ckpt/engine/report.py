"""What the engine did with one layer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ..assignment import KEEP

if TYPE_CHECKING:
    from collections.abc import Mapping


class Mode(StrEnum):
    """How a layer is recomputed."""

    UNUSED = "unused"
    KEEP = "keep"
    SYMBOLIC = "traced symbolic"
    PER_SHAPE = "traced per shape"
    SUBLAYERS = "sublayer replay"
    WHOLE = "whole-layer replay"


@dataclass(frozen=True, slots=True)
class EngineReport:
    """The last call of one layer, and how often it ran.

    ``stored_bytes`` are those of the tensors that each storing verb had after that forward, inputs and parameters not
    among them; ``rebuilt_bytes`` what was dropped and made again; ``replays`` how many backwards rebuilt something.
    ``reason`` says why the layer is replayed whole, "" otherwise. ``settled`` is False while a plan's first rebuild is
    still being compared, for which the layer keeps everything.
    """

    layer: str
    mode: Mode
    reason: str
    forwards: int
    replays: int
    stored_bytes: Mapping[str, int]
    rebuilt_bytes: int
    traces: int
    settled: bool = True

    @property
    def kept_bytes(self) -> int:
        """What stayed as it was."""
        return self.stored_bytes.get(KEEP, 0)
