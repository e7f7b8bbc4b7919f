"""Plans as pictures, PNG or SVG by the name of the file; needs the extra ``[plot]``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import CkptError, MissingExtraError
from ...whole_file import written_whole
from ..costs.timeline import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..costs.timeline import Moment
    from .findings import FrontierPoint

#: What a file may end with.
SUFFIXES = (".png", ".svg")
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class DrawnPlan:
    """A plan by its name: ``held`` bytes, added ``seconds`` a step, and all bytes alive at every moment of a step."""

    name: str
    held: int
    seconds: float
    moments: tuple[Moment, ...]


def plot_frontier(points: Sequence[FrontierPoint], path: Path, *, marked: float | None = None) -> None:
    """Draw added milliseconds a step over held GiB; ``marked`` is the held bytes of the plan in force.

    Raises MissingExtraError without matplotlib, and CkptError where the file cannot be written.
    """
    figure = _figure(7, 4)
    axes = figure.subplots()
    _draw_frontier(axes, points)
    if marked is not None:
        axes.axvline(marked / _GIB, linestyle="--", color="gray", label="this plan")
        axes.legend()
    _save(figure, path)


def plot_plans(
    points: Sequence[FrontierPoint], plans: Sequence[DrawnPlan], path: Path, *, title: str, memory: int | None
) -> None:
    """Draw the frontier with the plans on it, and below it the memory of each plan over a step, layer by layer.

    Args:
        points: The frontier.
        plans: The plans, all of one model and size of batch.
        path: The file.
        title: What was planned.
        memory: Bytes of the device; None where nobody says.

    Raises:
        MissingExtraError: matplotlib is not installed.
        CkptError: The file cannot be written.
    """
    figure = _figure(9, 9)
    figure.suptitle(title)
    above, below = figure.subplots(2, 1)
    _draw_frontier(above, points)
    for plan in plans:
        (mark,) = above.plot(plan.held / _GIB, 1e3 * plan.seconds, marker="D", linestyle="", label=plan.name)
        below.plot([moment.nbytes / _GIB for moment in plan.moments], color=mark.get_color(), label=plan.name)
    above.legend()
    _mark_phases(below, plans[0].moments)
    if memory is not None:
        below.axhline(memory / _GIB, linestyle="--", color="gray", label="memory of the card")
    below.set_ylabel("bytes on the card (GiB)")
    below.set_ylim(bottom=0)
    below.grid(visible=True, alpha=0.3)
    below.legend()
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    try:
        with written_whole(path) as file:
            figure.savefig(file, dpi=150)
    except OSError as error:
        raise CkptError(f"{path} cannot be written: {error.strerror or error}") from error


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure  # the extra [plot]
    except ImportError as error:
        raise MissingExtraError(
            "a picture of plans needs matplotlib, which is not installed: run `pip install 'hf-ckpt[plot]'`"
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def _draw_frontier(axes: Any, points: Sequence[FrontierPoint]) -> None:
    held = [point.solution.predicted.held / _GIB for point in points]
    added = [1e3 * point.solution.predicted.seconds for point in points]
    axes.plot(held, added, marker="o", markersize=4, label="fastest plans")
    axes.set_xlabel("bytes held by the layers after forward (GiB)")
    axes.set_ylabel("added time a step (ms)")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)


def _mark_phases(axes: Any, moments: Sequence[Moment]) -> None:
    """Name moments of a step on the horizontal axis: the loss, the optimizer's step, and some of the layers."""
    starts = {at: str(moment) for at, moment in enumerate(moments) if moment.phase in (Phase.LOSS, Phase.OPTIMIZER)}
    layers = [at for at, moment in enumerate(moments) if moment.layer is not None]
    every = max(1, len(layers) // 12)
    shown = {at: str(moments[at].layer) for number, at in enumerate(layers) if number % every == 0}
    ticks = dict(sorted((shown | starts).items()))
    axes.set_xticks(list(ticks), list(ticks.values()), rotation=60, horizontalalignment="right")
    axes.set_xlabel(f"layers in {Phase.FORWARD}, then in {Phase.BACKWARD}")
