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

    Attributes:
        layer: Its name in the model.
        mode: How it is recomputed.
        reason: Why it is recomputed whole; empty where it is not.
        forwards: How often it ran.
        replays: How many backwards rebuilt something.
        stored_bytes: Bytes that each storing verb had after that forward, inputs and parameters not among them.
        rebuilt_bytes: Bytes that were dropped and made again.
        traces: How often it was traced.
        settled: False while a plan's first rebuild is being compared, for which the layer keeps everything.
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
