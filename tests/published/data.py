"""The published measurements, read from ``pairs.toml``: facts with their source, and the plan that foretells each."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("pairs.toml")
_UNITS = {"GiB": 1 << 30, "GB": 10**9, "MiB": 1 << 20}


@dataclass(frozen=True)
class Pair:
    """One measurement, or two of which one is subtracted.

    Attributes:
        case: What was trained.
        model: Its name in the file's table of configs.
        plan: Options of `hf-ckpt plan` that say the same.
        memory: Published bytes; None where only the time is.
        unit: The unit they are published in.
        whole: Whether they are rounded to whole units.
        less: Options of a second plan, whose bytes are subtracted.
        counted: What the bytes are: ``allocated``, what layers hold of it (``held``), ``reserved`` by the allocator,
            ``video memory`` of the card, with all that is on it, or ``all of the card``, where nothing larger fits.
        added: Published time over that without checkpointing, less one; None where only the memory is.
        cause: Why the forecast differs, where it does by more than the bounds.
    """

    case: str
    model: str
    plan: str
    memory: float | None = None
    unit: str = "GiB"
    whole: bool = False
    counted: str = "allocated"
    less: str | None = None
    added: float | None = None
    cause: str = ""

    @property
    def key(self) -> str:
        """What tells it from all others."""
        return f"{self.model}: {self.case}: {self.plan}"

    @property
    def field(self) -> str:
        """The bytes of a forecast that they are held against: all on the card, or what the layers hold."""
        return "held_bytes" if self.counted == "held" else "total_bytes"

    @property
    def unit_bytes(self) -> int:
        """Bytes of the unit."""
        return _UNITS[self.unit]


@dataclass(frozen=True)
class Source:
    """Where measurements were published, and what they say was measured.

    ``older_loss``: whether they were taken with the loss that transformers had before 4.46.
    """

    name: str
    url: str
    measured: str
    pairs: tuple[Pair, ...]
    older_loss: bool = False


def read_sources() -> tuple[Source, ...]:
    """All sources of the file, in order."""
    return tuple(_source(entry) for entry in _read()["sources"])


def read_configs() -> dict[str, dict[str, Any]]:
    """The ``config.json`` of every model, by its name."""
    configs: dict[str, dict[str, Any]] = _read()["models"]
    return configs


def _source(entry: dict[str, Any]) -> Source:
    same = {name: entry[name] for name in ("unit", "counted") if name in entry}
    pairs = tuple(Pair(**(same | pair)) for pair in entry["pairs"])
    return Source(entry["name"], entry["url"], entry["measured"], pairs, entry.get("older_loss", False))


def _read() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))
