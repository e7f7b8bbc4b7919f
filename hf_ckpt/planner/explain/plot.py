"""The frontier as a picture; needs the extra ``[plot]``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .findings import FrontierPoint


def plot_frontier(points: Sequence[FrontierPoint], path: Path, *, marked: float | None = None) -> None:
    """Write a PNG: added milliseconds a step over held GiB; ``marked`` is the held bytes of the plan in force.

    Raises MissingExtraError without matplotlib.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(
            "a plot of the frontier needs matplotlib, which is not installed: run `pip install 'hf-ckpt[plot]'`"
        ) from error
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    held = [point.solution.predicted.held / (1 << 30) for point in points]
    added = [1e3 * point.solution.predicted.seconds for point in points]
    axes.step(held, added, where="post", marker="o", markersize=4)
    if marked is not None:
        axes.axvline(marked / (1 << 30), linestyle="--", color="gray", label="this plan")
        axes.legend()
    axes.set_xlabel("bytes held by the layers after forward (GiB)")
    axes.set_ylabel("added time a step (ms)")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    figure.savefig(path, format="png", dpi=150)
