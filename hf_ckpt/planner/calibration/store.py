"""Calibrations on disk: one small JSON file a device in the user's cache folder."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...whole_file import write_whole
from ..costs.roofline import Calibration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Raised whenever the benchmark or the fields change, so that older files are measured again.
VERSION = 6
#: What is believed of a device, slowest and fastest: FLOP/s, bytes/s, and seconds of an op or of a layer's hooks.
_FLOPS = (1e6, 1e17)
_BYTES = (1e5, 1e15)
_SECONDS = (1e-8, 1.0)


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """``$XDG_CACHE_HOME/hf-ckpt``, or ``~/.cache/hf-ckpt`` where that variable is unset, empty or relative.

    A user without a home (any number in a container may be one) has a folder that nothing can be stored in.
    """
    base = Path(environment.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        try:
            base = Path.home() / ".cache"
        except RuntimeError:
            base = Path(os.devnull)
    return base / "hf-ckpt"


def file_name(device: str) -> str:
    """A file name for a device's description, of letters, digits and dashes."""
    return "calibration-" + re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") + ".json"


def dumps(calibration: Calibration) -> str:
    """The calibration as JSON text; :func:`parse` reads it back."""
    return json.dumps({"version": VERSION, **asdict(calibration)}, indent=1)


def parse(text: str) -> Calibration | None:
    """The calibration in this text, or None when it is damaged, foreign or of another version."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    names = {f.name for f in fields(Calibration)}
    if not isinstance(found, dict) or found.pop("version", None) != VERSION or set(found) != names:
        return None
    if not _has_rates(found):
        return None
    calibration = Calibration(**found)
    return calibration if is_plausible(calibration) else None


def is_plausible(found: Calibration) -> bool:
    """Whether every rate is one that a device of this decade can have; a clock that jumps gives others."""
    flops = (*found.matmul.values(), *found.attention.values())
    link = () if found.host_link is None else (found.host_link,)
    speeds = (found.stream, found.gather, found.random, *found.special.values(), *link)
    return (
        _all_within(_FLOPS, flops)
        and _all_within(_BYTES, speeds)
        and _all_within(_SECONDS, (found.per_op, found.per_layer))
    )


def _all_within(bounds: tuple[float, float], rates: Iterable[float]) -> bool:
    return all(bounds[0] <= rate <= bounds[1] for rate in rates)


def _has_rates(found: Mapping[str, Any]) -> bool:
    """Whether the fields hold numbers where rates belong."""
    rates: list[object] = [found[name] for name in ("stream", "gather", "random", "per_op", "per_layer")]
    for table in (found["matmul"], found["attention"], found["special"]):
        if not isinstance(table, dict) or not {"half", "single"} <= set(table):
            return False
        rates += table.values()
    if found["host_link"] is not None:
        rates.append(found["host_link"])
    numbers = all(isinstance(r, int | float) and not isinstance(r, bool) for r in rates)
    return numbers and isinstance(found["device"], str) and isinstance(found["asynchronous"], bool)


def load(device: str, folder: Path) -> Calibration | None:
    """The stored calibration of this device, or None."""
    try:
        text = (folder / file_name(device)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    calibration = parse(text)
    return calibration if calibration is not None and calibration.device == device else None


def store(calibration: Calibration, folder: Path) -> None:
    """Write it so that other processes see the old file or the new one, never half of one.

    A folder that cannot be written costs the next run a measurement, nothing else.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / file_name(calibration.device), dumps(calibration).encode())
    except (OSError, RuntimeError):  # pathlib raises RuntimeError at a loop of symbolic links
        return
