"""What a card can do, each number with its source, and the rates that the planner reads. Pure, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..planner.costs.roofline import Calibration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: A measured rate that differs from the profile's by more than this share is said.
NOTABLE = 0.3


@dataclass(frozen=True, slots=True)
class Figure:
    """A number and where it is from: a data sheet, a publication, or how it follows from one."""

    value: float
    source: str

    def share(self, part: float, source: str) -> Figure:
        """This much of the figure, for the reason in ``source``."""
        return Figure(part * self.value, f"{part:.1%} of {self.value:.4g} ({self.source}): {source}")


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """One card.

    Attributes:
        name: As ``hf-ckpt plan --gpu`` takes it.
        title: As torch names the card.
        capability: CUDA compute capability.
        capacity: Bytes that torch finds on it.
        peak: FLOP/s of dense matrix products by dtype class (``"half"``, ``"single"``), by the data sheet.
        matmul: FLOP/s that large matrix products reach.
        attention: FLOP/s that attention kernels reach; a causal one computes half of the square.
        bandwidth: Bytes/s of device memory, by the data sheet.
        stream: Bytes/s that element-wise kernels reach; exponentials and random numbers hide behind the traffic.
        launch: Seconds between two ops when there is nothing to compute.
        replay: Seconds that replaying anything adds to a layer beside its ops.
        host_link: Bytes/s to and from pinned host memory.
    """

    name: str
    title: str
    capability: tuple[int, int]
    capacity: Figure
    peak: Mapping[str, Figure]
    matmul: Mapping[str, Figure]
    attention: Mapping[str, Figure]
    bandwidth: Figure
    stream: Figure
    launch: Figure
    replay: Figure
    host_link: Figure

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """Every number of the profile by name."""
        for name in ("capacity", "bandwidth", "stream", "launch", "replay", "host_link"):
            yield name, getattr(self, name)
        for name in ("peak", "matmul", "attention"):
            yield from ((f"{name} {dtype}", figure) for dtype, figure in getattr(self, name).items())

    def rates(self) -> Calibration:
        """The profile as the planner's rates."""
        stream = self.stream.value
        return Calibration(
            device=f"{self.title}, by its data sheet and published measurements",
            matmul=_values(self.matmul),
            attention=_values(self.attention),
            stream=stream,
            special=dict.fromkeys(self.matmul, stream),
            gather=stream,
            random=stream,
            per_op=self.launch.value,
            per_layer=self.replay.value,
            host_link=self.host_link.value,
            asynchronous=True,
        )


def _values(figures: Mapping[str, Figure]) -> dict[str, float]:
    return {name: figure.value for name, figure in figures.items()}


def differences(profile: DeviceProfile, measured: Calibration) -> Iterator[str]:
    """One sentence for every rate of the card itself that differs from its profile by more than :data:`NOTABLE`."""
    expected = profile.rates()
    pairs = {f"{name} {dtype}": (rates[dtype], getattr(measured, name)[dtype])
             for name, rates in (("matmul", expected.matmul), ("attention", expected.attention))
             for dtype in rates}  # fmt: skip
    pairs["memory"] = (expected.stream, measured.stream)
    if expected.host_link is not None and measured.host_link is not None:
        pairs["host link"] = (expected.host_link, measured.host_link)
    for name, (said, found) in pairs.items():
        if abs(found / said - 1) > NOTABLE:
            yield f"{name}: measured {found:.3g}/s, {found / said - 1:+.0%} from the profile's {said:.3g}/s"
