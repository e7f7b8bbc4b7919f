"""From what a policy decided to the saved buffers a layer keeps. Pure: it reads a ledger, not a model."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ...assignment import Assignment
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
from ..verb import readable_buffers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ...policy.decision import SaveableOps


#: The key of the layer's own input, which no op of the layer makes.
INPUT_KEY = "input"

#: What a policy decided about a layer, or the keys of its buffers by verb (see :func:`buffer_keys`).
Plan = Decision | Assignment[str]


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


def plan_of(ledger: LayerLedger, assignment: Assignment[int]) -> Assignment[str]:
    """The same assignment by key, which any ledger of the layer's class understands.

    Args:
        ledger: The ledger that the assignment is of.
        assignment: Its buffers by verb.

    Returns:
        Their keys by verb.
    """
    keys = buffer_keys(ledger) | dict.fromkeys(_own_input(ledger), INPUT_KEY)
    return Assignment.where(**{verb: {keys[b] for b in buffers} for verb, buffers in assignment.stored})


def select(plan: Plan, ledger: LayerLedger, sublayers: Mapping[Role, tuple[str, ...]]) -> Assignment[int]:
    """The verb of every saved activation of a ledger.

    A buffer that only an op which must not run twice could make is kept whatever the plan says.

    Args:
        plan: A policy's decision, or keys by verb.
        ledger: What one call of the layer saves.
        sublayers: The names of modules by role, relative to the layer.

    Returns:
        The ledger's buffers by verb; what is in none is made again.

    Raises:
        PolicyError: No single layer can carry out the decision.
    """
    match plan:
        case Assignment():
            return _by_index(plan, ledger)
        case Keep():
            return Assignment.where(keep=(b.index for b in ledger.saved_activations()))
        case RecomputeLayer(offload):
            sent = _own_input(ledger) if offload else ()
            return Assignment.where(keep=keep_all_but(ledger, _activations(ledger)), offload=sent)
        case RecomputeSublayers(roles):
            return Assignment.where(keep=keep_all_but(ledger, made_inside(ledger, _names(roles, sublayers))))
        case RecomputeExcept(saveable):
            return Assignment.where(keep=keep_products(ledger, saveable))
        case RecomputeUnion(parts):
            activations = _activations(ledger)
            dropped = (b for part in parts for b in activations - select(part, ledger, sublayers).kept)
            return Assignment.where(keep=keep_all_but(ledger, frozenset(dropped)))
    raise PolicyError(f"{plan!r} spans several layers: it needs `engine=torch`")


def _by_index(plan: Assignment[str], ledger: LayerLedger) -> Assignment[int]:
    """The buffers of ``ledger`` that the keys mean, with whatever the rest cannot be made again without kept too."""
    keys = buffer_keys(ledger)
    every = keys | dict.fromkeys(_own_input(ledger), INPUT_KEY)
    named = {verb: {b for b, key in every.items() if key in wanted} for verb, wanted in plan.stored}
    assignment = Assignment.where(**named)
    again = frozenset(keys) - assignment.held
    return assignment.keeping(keep_all_but(ledger, again, assignment))


def keep_all_but(ledger: LayerLedger, wanted: frozenset[int], stored: Assignment[int] | None = None) -> frozenset[int]:
    """The buffers kept when ``wanted`` are rebuilt, and with them whatever ``wanted`` cannot be rebuilt without.

    What other verbs have ``stored`` is not kept.
    """
    elsewhere = frozenset[int]() if stored is None else stored.held - stored.kept
    readable = frozenset[int]() if stored is None else readable_buffers(stored)
    saved = [b.index for b in ledger.saved_activations()]
    kept = {b for b in saved if b not in wanted and b not in elsewhere}
    for index in saved:
        if index in wanted and not can_rebuild(ledger, index, readable | kept):
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


def _own_input(ledger: LayerLedger) -> tuple[int, ...]:
    """The layer's own input, where a verb may store it."""
    own = ledger.movable_input
    return () if own is None else (own.index,)


def _activations(ledger: LayerLedger) -> frozenset[int]:
    return frozenset(b.index for b in ledger.saved_activations() if b.source is not Source.ONCE)


def _names(roles: Iterable[Role], sublayers: Mapping[Role, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(name for role in roles for name in sublayers.get(role, ()))


def _is_inside(module: str, names: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)
