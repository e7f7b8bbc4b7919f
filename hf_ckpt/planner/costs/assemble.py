"""From the ledgers of a model's layers to the planner's problem. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from ...ledger import Buffer, ChunkedPart, LayerLedger, Source
from ..verbs.rebuild import rebuilt_ops
from .problem import Gradients, HeadOption, HostLink, Kind, Problem
from .roofline import kind_of
from .transient import transient_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...assignment import Assignment
    from .roofline import Calibration

_NOTHING: frozenset[int] = frozenset()


def assemble(
    ledgers: Sequence[LayerLedger | None],
    rates: Calibration,
    *,
    gradients: Sequence[int] | None = None,
    heads: tuple[HeadOption, ...] = (HeadOption(1, 0),),
    head_gradients: int = 0,
    late_gradients: int = 0,
    gathering: int = 0,
    freed: Sequence[int] = (),
    offload: bool = False,
    outside: int = 0,
    chunked: Sequence[Sequence[ChunkedPart]] = (),
    class_names: Sequence[str] = (),
    given: Sequence[Sequence[int]] = (),
    waiting: Gradients | None = None,
) -> Problem:
    """Build the planner's problem.

    Args:
        ledgers: What each layer saves, in forward order; None for a layer that is replayed whole.
        rates: The rates of the device.
        gradients: Bytes of parameter gradients that each layer's backward makes; None where they exist beforehand.
        heads: The ways to run the loss head.
        head_gradients: Bytes of gradients made before the layers'.
        late_gradients: Bytes of gradients made after them.
        gathering: Bytes that gathering weights and reducing gradients takes in every layer's backward.
        freed: Bytes that each layer's backward gives back when it ends; () where none does.
        offload: Whether plans may offload, where the device has a link that was measured.
        outside: Bytes that a forward saves beside the layers and the loss head.
        chunked: Each layer's parts that run in chunks; () where all run whole.
        class_names: The class of each layer. One without a ledger is given as much as the others of its class.
        given: The storages, by key, of the tensors that each layer is given; () where nobody knows.
        waiting: The gradients that wait in a backward through several forwards; None where none do.

    Returns:
        The problem.

    Raises:
        ValueError: Every ledger is None: nothing is known then.
    """
    if all(ledger is None for ledger in ledgers):
        raise ValueError("no layer has a ledger")
    ledgers = _with_chunks(ledgers, chunked) if chunked else ledgers
    classes = list(class_names) or [""] * len(ledgers)
    kinds, order = _kinds(ledgers, rates, [0] * len(ledgers) if gradients is None else gradients, classes)
    return Problem(
        kinds=kinds,
        order=order,
        heads=heads,
        shared=_shared_bytes([(kinds[k].ledger, _NOTHING) for k in order], given),
        given=tuple(map(tuple, given)),
        head_gradients=head_gradients,
        late_gradients=late_gradients,
        gathering=gathering,
        freed=tuple(freed),
        overhead=rates.per_layer,
        link=HostLink(rates.host_link) if offload and rates.host_link is not None else None,
        outside=outside,
        chunk_seconds=sum(_seconds_in_chunks(kinds[k]) for k in order),
        waiting=waiting,
    )


def _kinds(
    ledgers: Sequence[LayerLedger | None], rates: Calibration, gradients: Sequence[int], classes: Sequence[str]
) -> tuple[tuple[Kind, ...], tuple[int, ...]]:
    """The kinds of layers and the kind of each layer: alike in ledger, or class without one, and bytes of gradients."""
    known = [ledger for ledger in ledgers if ledger is not None]
    different, which = _different(ledgers)
    opaque = [name if ledger is None else "" for name, ledger in zip(classes, ledgers, strict=True)]
    keys = list(zip(which, gradients, opaque, strict=True))
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    kinds = tuple(
        _opaque(known, nbytes, name) if ledger is None else kind_of(ledger, rates, gradients=nbytes)
        for ledger, nbytes, name in ((different[number], nbytes, name) for number, nbytes, name in numbers)
    )
    return kinds, tuple(numbers[key] for key in keys)


def _different(ledgers: Sequence[LayerLedger | None]) -> tuple[list[LayerLedger | None], list[int]]:
    """The ledgers that differ, and which of them each layer has. Layers share few ledgers: each is hashed once."""
    numbers: dict[LayerLedger | None, int] = {}
    by_identity = {id(ledger): ledger for ledger in ledgers}
    which = {key: numbers.setdefault(ledger, len(numbers)) for key, ledger in by_identity.items()}
    return list(numbers), [which[id(ledger)] for ledger in ledgers]


def _with_chunks(
    ledgers: Sequence[LayerLedger | None], chunked: Sequence[Sequence[ChunkedPart]]
) -> list[LayerLedger | None]:
    """The ledgers with the parts that run in chunks; layers that share a ledger and parts share one again."""
    made: dict[tuple[int, tuple[ChunkedPart, ...]], LayerLedger] = {}
    found: list[LayerLedger | None] = []
    for ledger, parts in zip(ledgers, map(tuple, chunked), strict=True):
        if ledger is not None and (id(ledger), parts) not in made:
            made[id(ledger), parts] = replace(ledger, chunked=parts)
        found.append(None if ledger is None else made[id(ledger), parts])
    return found


def _seconds_in_chunks(kind: Kind) -> float:
    """Seconds of a layer's forward in the parts that run in chunks, which their backwards take once more."""
    parts, pairs = kind.ledger.chunked, zip(kind.ledger.ops, kind.seconds, strict=True)
    return sum(seconds for op, seconds in pairs if any(part.has(op) for part in parts)) if parts else 0.0


def under(problem: Problem, plans: Sequence[Assignment[int]]) -> Problem:
    """``problem`` with what each layer needs under its plan.

    That is its backward, where ``problem`` has room for what any plan needs, and masks that only a replay reads, which
    ``problem`` leaves out.
    """
    keys = list(zip(problem.order, plans, strict=True))
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    kinds = tuple(_kind_under(problem.kinds[k], plan) for k, plan in numbers)
    again = [(problem.kinds[k].ledger, rebuilt_ops(problem.kinds[k], plan)) for k, plan in numbers]
    order = tuple(numbers[key] for key in keys)
    read = _shared_bytes([again[number] for number in order], problem.given)
    return replace(problem, kinds=kinds, order=order, shared=max(problem.shared, read))


def _kind_under(kind: Kind, plan: Assignment[int]) -> Kind:
    if not kind.ledger.ops:
        return kind
    return replace(kind, transient=transient_bytes(kind.ledger, gradients=kind.gradients, held=plan.held))


def waited_for(problem: Problem) -> Problem:
    """``problem`` where its ``waiting`` gradients come up in backward beside those that are there."""
    waiting = problem.waiting
    if waiting is None:
        return problem
    keys = list(zip(problem.order, waiting.layers, strict=True))
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return replace(
        problem,
        kinds=tuple(_with_gradients(problem.kinds[k], nbytes) for k, nbytes in numbers),
        order=tuple(numbers[key] for key in keys),
        head_gradients=problem.head_gradients + waiting.head,
        late_gradients=problem.late_gradients + waiting.late,
    )


def _with_gradients(kind: Kind, nbytes: int) -> Kind:
    """``kind`` whose backward makes so many bytes of gradients more."""
    gradients = kind.gradients + nbytes
    if not kind.ledger.ops:
        return replace(kind, transient=kind.transient + nbytes, gradients=gradients)
    return replace(kind, transient=transient_bytes(kind.ledger, gradients=gradients), gradients=gradients)


def shared_input_bytes(ledger: LayerLedger, again: frozenset[int] = _NOTHING) -> int:
    """Bytes of the inputs that all layers share (masks, rotary tables): they count once.

    Alive are those that autograd saves, and those that the ops running ``again`` read.
    """
    return sum(b.nbytes for b in _shared_inputs(ledger, again))


def _shared_inputs(ledger: LayerLedger, again: frozenset[int]) -> Iterator[Buffer]:
    inputs = [b for b in ledger.buffers if b.source is Source.INPUT]
    read = {b for op in again for b in ledger.ops[op].inputs}
    return (b for b in inputs[1:] if not b.own and (b.saved or b.index in read))


def _shared_bytes(layers: Sequence[tuple[LayerLedger, frozenset[int]]], given: Sequence[Sequence[int]]) -> int:
    """Bytes of what layers share, each with the ops that it runs again.

    An encoder's layers share other tensors than a decoder's. Where nobody knows what they are ``given``, all are taken
    to share the same.
    """
    inputs = {(id(ledger), again): list(_shared_inputs(ledger, again)) for ledger, again in layers}
    each = [inputs[id(ledger), again] for ledger, again in layers]
    known = len(given) == len(layers) and all(
        b.index < len(keys) for keys, read in zip(given, each, strict=True) for b in read
    )
    if not known:
        return max(sum(b.nbytes for b in read) for read in inputs.values())
    bytes_of = Counter[int]()
    for keys, read in zip(given, each, strict=True):
        mine = Counter[int]()
        for b in read:
            mine[keys[b.index]] += b.nbytes
        bytes_of |= mine
    return sum(bytes_of.values())


def _opaque(known: Sequence[LayerLedger], gradients: int, class_name: str) -> Kind:
    """A layer that is replayed whole, or that did not run yet (LayerDrop).

    It holds its input, as large as the largest one known of its class, and its backward is taken for the worst one
    known.
    """
    alike = [ledger for ledger in known if ledger.class_name == class_name] or known
    held = max((ledger.buffers[0] for ledger in alike), key=lambda buffer: buffer.nbytes)
    saved = Buffer(0, held.nbytes, Source.INPUT, None, (0,), held.shape, held.dtype)
    return Kind(
        LayerLedger("replayed whole", (saved,), ()), (), max(map(transient_bytes, known)) + gradients, gradients
    )
