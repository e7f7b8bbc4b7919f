"""What the engine did with one layer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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

    ``kept_bytes`` are what the layer held after that forward besides its inputs, its parameters and what it offloaded;
    ``rebuilt_bytes`` what it dropped and made again; ``replays`` how many backwards rebuilt something. ``reason`` says
    why the layer is replayed whole, "" otherwise. ``settled`` is False while a plan's first rebuild is still being
    compared, for which the layer keeps everything.
    """

    layer: str
    mode: Mode
    reason: str
    forwards: int
    replays: int
    kept_bytes: int
    rebuilt_bytes: int
    offloaded_bytes: int
    traces: int
    settled: bool = True
