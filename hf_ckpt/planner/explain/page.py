"""Memory over a step as one HTML file: inline SVG, no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, tostring

from rich.filesize import decimal

from ..costs.parts import MomentParts, Part
from ..costs.timeline import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH, _HEIGHT = 960, 300
_LEFT, _TOP, _BOTTOM = 84, 34, 26
#: Names of layers under one chart, at most.
_NAMES = 14
_COLOURS = {
    Part.STATE: "#9aa5b1",
    Part.GRADIENTS: "#d9a441",
    Part.SHARED: "#c8ccd2",
    Part.BOUNDARIES: "#5b8def",
    Part.KEPT: "#2f5fb3",
    Part.REPLAYED: "#e4572e",
    Part.HEAD: "#7b4fa3",
    Part.STEP: "#6b7280",
}
_STYLE = (
    "body{font:14px system-ui,sans-serif;margin:2em auto;max-width:1000px;color:#1f2933}"
    "h2{margin:1.6em 0 .2em}.key{display:inline-block;margin-right:1.2em}.key i{display:inline-block;width:.8em;"
    "height:.8em;margin-right:.4em}svg text{font:11px system-ui,sans-serif;fill:#1f2933}"
)


@dataclass(frozen=True, slots=True)
class Chart:
    """A step to draw: its name, and its moments in order."""

    name: str
    moments: tuple[MomentParts, ...]

    @property
    def spike(self) -> MomentParts:
        """The first of the moments at which most bytes are alive."""
        return max(self.moments, key=lambda taken: taken.moment.nbytes)


def on_top_of(state: int, moments: Sequence[MomentParts]) -> tuple[MomentParts, ...]:
    """The moments above ``state`` bytes that stand all along."""
    return tuple(
        MomentParts(replace(taken.moment, nbytes=taken.moment.nbytes + state), {Part.STATE: state} | taken.bytes_of)
        for taken in moments
    )


def memory_page(title: str, charts: Sequence[Chart], memory: int | None, told: str = "") -> str:
    """The page.

    Args:
        title: What was planned, or what ran out.
        charts: The steps, one picture each, to the same scale.
        memory: Bytes of the device; None where nobody says.
        told: A paragraph above the pictures.

    Returns:
        HTML.
    """
    most = max([chart.spike.moment.nbytes for chart in charts] + [memory or 0]) or 1
    used = {part for chart in charts for taken in chart.moments for part, nbytes in taken.bytes_of.items() if nbytes}
    body = [f"<h1>{escape(title)}</h1>", f"<p>{escape(told)}</p>" if told else "", _key(used)]
    for chart in charts:
        body += [
            f"<h2>{escape(chart.name)}</h2>",
            f"<p>{escape(_spike_in_words(chart))}</p>",
            _svg(chart, most, memory),
        ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _key(used: set[Part]) -> str:
    return "".join(
        f'<span class="key"><i style="background:{_COLOURS[part]}"></i>{escape(part)}</span>'
        for part in Part
        if part in used
    )


def _spike_in_words(chart: Chart) -> str:
    spike = chart.spike
    parts = sorted(spike.bytes_of.items(), key=lambda pair: -pair[1])
    largest = ", ".join(f"{part} {decimal(nbytes)}" for part, nbytes in parts[:3] if nbytes)
    return f"Spike: {spike.moment}, {decimal(spike.moment.nbytes)} ({largest})."


def _svg(chart: Chart, most: int, memory: int | None) -> str:
    svg = Element("svg", viewBox=f"0 0 {_WIDTH} {_HEIGHT}", width="100%", xmlns="http://www.w3.org/2000/svg")
    wide = (_WIDTH - _LEFT) / len(chart.moments)
    for number, taken in enumerate(chart.moments):
        _bar(svg, taken, _LEFT + number * wide, wide, most)
    _axis(svg, chart, wide, most)
    _line(svg, _height_of(chart.spike.moment.nbytes, most), "spike", "#e4572e", chart.spike.moment.nbytes)
    if memory is not None:
        _line(svg, _height_of(memory, most), "memory of the device", "#1f2933", memory, dashed=True)
    return tostring(svg, encoding="unicode")


def _height_of(nbytes: int, most: int) -> float:
    """Pixels from the top at which a bar of so many bytes ends."""
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * nbytes / most


def _bar(svg: Element, taken: MomentParts, left: float, wide: float, most: int) -> None:
    group, below = SubElement(svg, "g"), 0
    lines = [f"{part}: {decimal(nbytes)}" for part, nbytes in taken.bytes_of.items() if nbytes]
    SubElement(group, "title").text = "\n".join([f"{taken.moment}: {decimal(taken.moment.nbytes)}", *lines])
    for part in Part:
        nbytes = taken.bytes_of.get(part, 0)
        if nbytes:
            top, bottom = _height_of(below + nbytes, most), _height_of(below, most)
            SubElement(
                group, "rect", x=f"{left:.2f}", y=f"{top:.2f}", width=f"{max(0.5, 0.92 * wide):.2f}",
                height=f"{bottom - top:.2f}", fill=_COLOURS[part],
            )  # fmt: skip
            below += nbytes


def _axis(svg: Element, chart: Chart, wide: float, most: int) -> None:
    """Zero and the top of the scale, and the names of some moments."""
    every = max(1, -(-len(chart.moments) // _NAMES))
    for number, taken in enumerate(chart.moments):
        named = taken.moment.phase in (Phase.LOSS, Phase.OPTIMIZER) or (taken.moment.layer or 0) % every == 0
        if named:
            word = str(taken.moment.phase if taken.moment.layer is None else taken.moment.layer)
            SubElement(svg, "text", x=f"{_LEFT + number * wide:.1f}", y=str(_HEIGHT - 10)).text = word
    for nbytes in (0, most):
        at = SubElement(svg, "text", {"x": "4", "y": f"{_height_of(nbytes, most):.1f}"})
        at.text = decimal(nbytes)


def _line(svg: Element, at: float, word: str, colour: str, nbytes: int, *, dashed: bool = False) -> None:
    dash = {"stroke-dasharray": "6 4"} if dashed else {}
    SubElement(svg, "line", {"x1": str(_LEFT), "x2": str(_WIDTH), "y1": f"{at:.2f}", "y2": f"{at:.2f}",
                             "stroke": colour, **dash})  # fmt: skip
    SubElement(svg, "text", x=str(_LEFT + 4), y=f"{at - 4:.2f}").text = f"{word}, {decimal(nbytes)}"
