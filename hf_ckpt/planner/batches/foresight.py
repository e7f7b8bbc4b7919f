"""What a batch of a size not met before will save: arithmetic on the traces of batches that were met. Pure, no torch.

A symbolic trace says the bytes of every buffer as an expression over a few symbols, sizes of the layer's inputs. What
the symbols will be follows from what they were: most are the rows or the length of the batch itself, others differ from
those by a constant (virtual tokens, shifted labels). A symbol that follows no rule is guessed from above; the forward
that runs under such a plan shows what it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations_with_replacement
from math import ceil
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ...engine import SizedTrace
    from ...engine.tracing.ir import Trace
    from ...ledger import LayerLedger
    from .per_batch import BatchSize

    #: The sizes of batches, and what a symbol was in each.
    Series: TypeAlias = Sequence[tuple[BatchSize, int]]

#: Traces that are remembered, and batches of each.
_MAX_TRACES = 32
_MAX_BATCHES = 64
#: The share of a layer's bytes by which a forecast may be off.
TOLERANCE = 0.01


@dataclass
class Foresight:
    """The sizes of the batches met, and in the traces of their layers the values of the symbols."""

    #: Per layer its latest trace; None for a layer without any.
    _layers: tuple[SizedTrace | None, ...] = ()
    _met: dict[Trace, dict[BatchSize, Mapping[str, int]]] = field(default_factory=dict)

    def note(self, size: BatchSize, layers: Sequence[SizedTrace | None]) -> None:
        """A forward of a batch of this size ran, and its layers had these traces."""
        self._layers = tuple(layers)
        for seen in filter(None, layers):
            _make_room(self._met, _MAX_TRACES, seen.trace)
            batches = self._met.setdefault(seen.trace, {})
            _make_room(batches, _MAX_BATCHES, size)
            batches[size] = seen.sizes

    def ledgers(self, size: BatchSize) -> tuple[LayerLedger, ...] | None:
        """What every layer will save of a batch of this size; None where the traces do not tell."""
        found: dict[Trace, LayerLedger | None] = {}
        for seen in self._layers:
            if seen is None:
                return None
            if seen.trace not in found:
                found[seen.trace] = self._ledger(seen, size)
        ledgers = [found[seen.trace] for seen in self._layers if seen is not None]
        return tuple(ledger for ledger in ledgers if ledger is not None) if ledgers and all(ledgers) else None

    def _ledger(self, seen: SizedTrace, size: BatchSize) -> LayerLedger | None:
        batches = self._met.get(seen.trace, {})
        fixed = seen.trace.guards.fixed_sizes
        if not any(_leaves_open(known, size, fixed) for known in batches):
            return None
        series = {name: [(known, sizes[name]) for known, sizes in batches.items()] for name in seen.sizes}
        return seen.ledger_at({name: foreseen(values, size) for name, values in series.items()})

    def __reduce__(self) -> tuple[type[Foresight], tuple[()]]:
        # Traces are of this process.
        return Foresight, ()


def foreseen(series: Series, size: BatchSize) -> int:
    """What a symbol that had these values will be in a batch of this size; where several rules hold, the largest."""
    told = [*_equal(series, size)] or [*_on_a_line(series, size)]
    return max(told) if told else _from_above(series, size)


def is_as_foreseen(foreseen: LayerLedger | None, real: LayerLedger | None) -> bool:
    """Whether a layer saved what was foreseen."""
    if foreseen is None or real is None:
        return foreseen is real
    expected, met = (sum(b.nbytes for b in ledger.saved_activations()) for ledger in (foreseen, real))
    return abs(expected - met) <= TOLERANCE * met


def _equal(series: Series, size: BatchSize) -> Iterator[int]:
    """Values by the measures of a batch, or products of two of them, that every value met is equal to."""
    wanted = size.measures
    for names in ((name,) for name in wanted), combinations_with_replacement(wanted, 2):
        rules = [rule for rule in names if all(_product(known.measures, rule) == value for known, value in series)]
        if rules:
            yield from (_product(wanted, rule) for rule in rules)
            return


def _product(measures: Mapping[str, int], names: Sequence[str]) -> int:
    product = 1
    for name in names:
        product *= measures.get(name, 0)
    return product


def _on_a_line(series: Series, size: BatchSize) -> Iterator[int]:
    """Values on the lines over one measure of a batch that go through all that were met."""
    for name, wanted in size.measures.items():
        points = {known.measures.get(name, 0): value for known, value in series}
        if len(points) < 2:
            continue
        (x0, y0), (x1, y1) = list(points.items())[:2]
        slope = Fraction(y1 - y0, x1 - x0)
        if all(y0 + slope * (known.measures.get(name, 0) - x0) == value for known, value in series):
            yield max(0, ceil(y0 + slope * (wanted - x0)))


def _from_above(series: Series, size: BatchSize) -> int:
    """A bound for what grows with the batch, and no faster than it."""
    return min(ceil(value * max(1.0, size.load / max(1, known.load))) for known, value in series)


def _leaves_open(known: BatchSize, size: BatchSize, fixed: frozenset[int]) -> bool:
    """Whether a trace of a ``known`` batch may hold for this one: it has no size fixed that differs here."""
    before, now = known.measures, size.measures
    changed = [name for name in {*before, *now} if before.get(name) != now.get(name)]
    return before.keys() == now.keys() and not any(before[name] in fixed for name in changed)


def _make_room(table: dict, most: int, key: object) -> None:  # type: ignore[type-arg]
    """Forget the oldest entry of a full table."""
    if key not in table and len(table) >= most:
        del table[next(iter(table))]
