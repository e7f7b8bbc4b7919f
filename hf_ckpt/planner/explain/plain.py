"""What explains a plan as plain data, for JSON: sizes in bytes, times in seconds."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .findings import FrontierPoint, Gain, TensorRow


def as_plain(rows: Iterable[TensorRow], points: Iterable[FrontierPoint], gain: Gain | None) -> dict[str, Any]:
    """The saved tensors, the frontier and what more memory would buy; None where no budget bounds the plan."""
    return {
        "tensors": [
            asdict(row.row)
            | {"verbs": dict(row.verbs), "total_bytes": row.total, "seconds_per_gib": row.row.seconds_per_gib}
            for row in rows
        ],
        "frontier": [
            {
                "share_of_none": point.share,
                "held_bytes": point.solution.predicted.held,
                "peak_bytes": point.solution.predicted.peak,
                "added_seconds": point.solution.predicted.seconds,
            }
            for point in points
        ],
        "gain": None if gain is None else asdict(gain) | {"saved": gain.saved},
    }
