"""Whether parts that should run in chunks did, in the measured step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ledger import ChunkedPart
from .matrices import matrix_widths

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import nn

    from ..policy.decision import Role
    from .chunked_forward import ChunkedForward

#: Tensors as wide as a weight that a chunk has alive: what it makes, what an activation makes of that, a gradient.
_TENSORS_PER_WEIGHT = 3
#: What reports call the parts of a role.
_CALLED = {"attention": "projections", "mlp": "MLPs", "norm": "norms"}


@dataclass(frozen=True, slots=True)
class ChunksReport:
    """The parts of a role in a step: how many there are, how many ran in chunks, and why one did not (mostly empty)."""

    role: Role
    chunks: int
    parts: int
    ran_in_chunks: int
    reason: str = ""

    @property
    def called(self) -> str:
        """What they are called."""
        return _CALLED[self.role]


@dataclass(frozen=True, slots=True)
class ChunkedParts:
    """The parts that one term of a policy, such as ``mlp(8)``, put in chunks."""

    role: Role
    chunks: int
    forwards: tuple[ChunkedForward, ...]

    @property
    def cut(self) -> tuple[ChunkedForward, ...]:
        """Those that do run in chunks; one that always ran whole is none, and what it saves is in the ledgers."""
        return tuple(forward for forward in self.forwards if forward.use.in_chunks or not forward.use.whole)


def parts_in(chunked: Sequence[ChunkedParts], layers: Iterable[nn.Module]) -> tuple[tuple[ChunkedPart, ...], ...]:
    """The parts that do run in chunks, of each of these layers."""
    cut = {forward.module: forward for parts in chunked for forward in parts.cut}
    return tuple(
        tuple(_planned(name, cut[part]) for name, part in layer.named_modules() if part in cut) if cut else ()
        for layer in layers
    )


def _planned(name: str, forward: ChunkedForward) -> ChunkedPart:
    """Its float32 sums of the weights' gradients stand beside the gradients of a chunk."""
    sums = sum(weight.numel() * (4 + weight.element_size()) for weight in forward.trained())
    weights = list(forward.module.parameters())
    itemsize = max((w.element_size() for w in weights if w.is_floating_point()), default=4)
    token = _TENSORS_PER_WEIGHT * sum(matrix_widths(forward.module)) * itemsize
    return ChunkedPart(name, forward.chunks, sums, token)


class MeasuredChunks:
    """Counts what these parts did between its making and :meth:`report`."""

    def __init__(self, parts: ChunkedParts) -> None:
        self.parts = parts
        self._before = [(forward.use.in_chunks, forward.use.whole) for forward in parts.forwards]

    def report(self) -> ChunksReport:
        """What they did."""
        pairs = list(zip(self.parts.forwards, self._before, strict=True))
        ran = sum(forward.use.in_chunks > before for forward, (before, _) in pairs)
        whole = (forward.use for forward, (_, before) in pairs if forward.use.whole > before)
        reason = next((f"`{use.name}`: {use.why_whole}" for use in whole), "")
        return ChunksReport(self.parts.role, self.parts.chunks, len(self.parts.forwards), ran, reason)
