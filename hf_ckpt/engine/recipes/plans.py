"""From what a policy decided to the saved buffers a layer keeps. Pure: it reads a ledger, not a model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import PolicyError
from ...ledger import LayerLedger, Source
from ...policy.decision import (
    Decision,
    Keep,
    RecomputeExcept,
    RecomputeLayer,
    RecomputeSublayers,
    RecomputeUnion,
    Role,
)
from ...policy.saveable import is_saveable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ...policy.decision import SaveableOps


@dataclass(frozen=True, slots=True)
class BufferPlan:
    """An explicit plan: the keys of the buffers a layer keeps and offloads; every other one is rebuilt.

    Keys (see :func:`buffer_keys`) name what made a buffer, so one plan serves every signature of a layer: padded or
    not, short or long.
    """

    kept: frozenset[str]
    offloaded: frozenset[str] = frozenset()


Plan = Decision | BufferPlan


@dataclass(frozen=True, slots=True)
class Selection:
    """The saved buffers of one ledger by verb; what is in neither set is rebuilt."""

    kept: frozenset[int]
    offloaded: frozenset[int]

    @property
    def held(self) -> frozenset[int]:
        """What a rebuild may read: kept, or brought back first."""
        return self.kept | self.offloaded


def buffer_keys(ledger: LayerLedger) -> dict[int, str]:
    """A stable name for each saved activation: module, op, how many of these came before, which output.

    ``"self_attn.q_proj/aten.mm.default/0/0"``.
    """
    seen: Counter[tuple[str, str]] = Counter()
    ordinal: dict[int, int] = {}
    for op in ledger.ops:
        ordinal[op.index] = seen[op.module, op.name]
        seen[op.module, op.name] += 1
    keys = {}
    for buffer in ledger.saved_activations():
        if buffer.producer is not None:
            op = ledger.ops[buffer.producer]
            place = op.outputs.index(buffer.index)
            keys[buffer.index] = f"{op.module}/{op.name}/{ordinal[op.index]}/{place}"
    return keys


def plan_of(ledger: LayerLedger, kept: Iterable[int], offloaded: Iterable[int] = ()) -> BufferPlan:
    """The explicit plan that keeps and offloads these buffers of ``ledger``, given by index."""
    keys = buffer_keys(ledger)
    return BufferPlan(frozenset(keys[b] for b in kept), frozenset(keys[b] for b in offloaded))


def select(plan: Plan, ledger: LayerLedger, sublayers: Mapping[Role, tuple[str, ...]]) -> Selection:
    """The verb of every saved activation of ``ledger``.

    A buffer that only an op which must not run twice could make is kept whatever the plan says. Raises PolicyError for
    a decision that no single layer can carry out.
    """
    match plan:
        case BufferPlan(kept, offloaded):
            keys = buffer_keys(ledger)
            away = frozenset(b for b, key in keys.items() if key in offloaded)
            wanted = frozenset(b for b, key in keys.items() if key not in kept) - away
            return Selection(keep_all_but(ledger, wanted, away), away)
        case Keep():
            return Selection(frozenset(b.index for b in ledger.saved_activations()), frozenset())
        case RecomputeLayer():
            return Selection(keep_all_but(ledger, _activations(ledger)), frozenset())
        case RecomputeSublayers(roles):
            return Selection(keep_all_but(ledger, made_inside(ledger, _names(roles, sublayers))), frozenset())
        case RecomputeExcept(saveable):
            return Selection(keep_products(ledger, saveable), frozenset())
        case RecomputeUnion(parts):
            activations = _activations(ledger)
            dropped = (b for part in parts for b in activations - select(part, ledger, sublayers).kept)
            return Selection(keep_all_but(ledger, frozenset(dropped)), frozenset())
    raise PolicyError(f"{plan!r} spans several layers: it needs `engine=torch`")


def keep_all_but(
    ledger: LayerLedger, wanted: frozenset[int], offloaded: frozenset[int] = frozenset()
) -> frozenset[int]:
    """The buffers kept when ``wanted`` are rebuilt, and with them whatever ``wanted`` cannot be rebuilt without."""
    saved = [b.index for b in ledger.saved_activations()]
    kept = {b for b in saved if b not in wanted and b not in offloaded}
    for index in saved:
        if index in wanted and not can_rebuild(ledger, index, frozenset(kept) | offloaded):
            kept.add(index)
    return frozenset(kept)


def keep_products(ledger: LayerLedger, saveable: SaveableOps) -> frozenset[int]:
    """The buffers kept so that no saveable op runs twice.

    JAX keeps the output of every saveable op. Autograd hands over only what it saves, so where such an output is not
    saved itself, the first saved buffers made from it are kept instead.
    """
    kept: set[int] = set()
    for buffer in ledger.saved_activations():
        ops = _ops_behind(ledger, buffer.index, frozenset(kept))
        if ops is None or buffer.source is Source.ONCE or any(is_saveable(saveable, ledger.ops[op].name) for op in ops):
            kept.add(buffer.index)
    return frozenset(kept)


def made_inside(ledger: LayerLedger, modules: Iterable[str]) -> frozenset[int]:
    """The saved activations whose op ran inside one of these modules (names relative to the layer)."""
    names = tuple(modules)
    return frozenset(
        b.index
        for b in ledger.saved_activations()
        if b.producer is not None and _is_inside(ledger.ops[b.producer].module, names)
    )


def can_rebuild(ledger: LayerLedger, buffer: int, held: frozenset[int]) -> bool:
    """Whether ``buffer`` can be made again from ``held`` buffers, inputs and parameters."""
    return ledger.buffers[buffer].source is not Source.ONCE and _ops_behind(ledger, buffer, held) is not None


def _ops_behind(ledger: LayerLedger, buffer: int, held: frozenset[int]) -> frozenset[int] | None:
    """The ops that make ``buffer`` again, or None when one of them must not run twice."""
    try:
        return ledger.ops_behind([buffer], held)
    except ValueError:
        return None


def _activations(ledger: LayerLedger) -> frozenset[int]:
    return frozenset(b.index for b in ledger.saved_activations() if b.source is not Source.ONCE)


def _names(roles: Iterable[Role], sublayers: Mapping[Role, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(name for role in roles for name in sublayers.get(role, ()))


def _is_inside(module: str, names: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)
