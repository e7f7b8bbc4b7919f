"""Whether MLPs that should run in chunks did, in the measured step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .matrices import matrix_widths

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from .chunked_forward import ChunkedForward


@dataclass(frozen=True, slots=True)
class MlpReport:
    """The MLPs of a step: how many there are, how many ran in chunks, and why one did not (mostly empty)."""

    chunks: int
    mlps: int
    ran_in_chunks: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ChunkedMlps:
    """The MLPs that ``mlp(chunks)`` put in chunks."""

    chunks: int
    forwards: tuple[ChunkedForward, ...]

    @property
    def cut(self) -> tuple[ChunkedForward, ...]:
        """Those that do run in chunks; one that always ran whole is none, and what it saves is in the ledgers."""
        return tuple(forward for forward in self.forwards if forward.use.in_chunks or not forward.use.whole)

    def names_in(self, layers: Iterable[nn.Module]) -> tuple[str | None, ...]:
        """The name of each layer's MLP that does run in chunks, relative to the layer; None where it has none."""
        cut = {forward.module for forward in self.cut}
        return tuple(next((name for name, part in layer.named_modules() if part in cut), None) for layer in layers)

    def chunk_bytes(self, tokens: int) -> int:
        """Bytes that the backward of one MLP takes for itself when a batch has so many tokens, at most."""
        return max((_chunk_bytes(forward, -(-tokens // self.chunks)) for forward in self.cut), default=0)


#: Tensors as wide as a weight that a chunk has alive: what it makes, what an activation makes of that, a gradient.
_TENSORS_PER_WEIGHT = 3


def _chunk_bytes(forward: ChunkedForward, rows: int) -> int:
    """The tensors of a chunk of so many rows, the float32 sums of the weights' gradients, and a chunk's gradients."""
    weights = list(forward.module.parameters())
    width = sum(matrix_widths(forward.module))
    itemsize = max((w.element_size() for w in weights if w.is_floating_point()), default=4)
    sums = sum(weight.numel() * (4 + weight.element_size()) for weight in forward.trained())
    return _TENSORS_PER_WEIGHT * rows * width * itemsize + sums


class MeasuredMlps:
    """Counts what these MLPs did between its making and :meth:`report`."""

    def __init__(self, mlps: ChunkedMlps) -> None:
        self.mlps = mlps
        self._before = [(forward.use.in_chunks, forward.use.whole) for forward in mlps.forwards]

    def report(self) -> MlpReport:
        """What they did."""
        pairs = list(zip(self.mlps.forwards, self._before, strict=True))
        ran = sum(forward.use.in_chunks > before for forward, (before, _) in pairs)
        whole = (forward.use for forward, (_, before) in pairs if forward.use.whole > before)
        reason = next((f"`{use.name}`: {use.why_whole}" for use in whole), "")
        return MlpReport(self.mlps.chunks, len(self.mlps.forwards), ran, reason)
