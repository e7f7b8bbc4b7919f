"""Why a plan is as it is: what each saved tensor costs to keep and to rebuild, what other budgets would buy. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...assignment import KEEP
from ...ledger import Source
from ..budget import held_without_checkpointing
from ..costs.problem import Limits
from ..solver.refine import refined, solve_refined
from ..solver.solve import Solution, least_held, solve
from ..verb import verb_of
from ..verbs.rebuild import needs_input

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...assignment import Assignment
    from ..costs.problem import Kind, Problem

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One saved tensor of a layer.

    ``tensor`` is its shape and dtype, ``seconds`` what rebuilding it takes when everything else is kept (None: it
    cannot be rebuilt, because a side effect is in it, or no op of the layer makes it).
    """

    tensor: str
    module: str
    op: str
    nbytes: int
    verb: str
    seconds: float | None

    @property
    def seconds_per_gib(self) -> float | None:
        """The price of the memory that rebuilding this tensor frees."""
        return None if self.seconds is None or not self.nbytes else self.seconds * GIB / self.nbytes


def ledger_rows(kind: Kind, plan: Assignment[int], *, own_input: bool = False) -> tuple[LedgerRow, ...]:
    """The saved tensors of a layer of this kind under ``plan``, in the order they are made.

    With ``own_input`` the layer's input is among them where the layer holds it, or a verb stores it.
    """
    own, held = kind.own_input, set(kind.everything)
    if own_input and own is not None and (own.index in plan.held or needs_input(kind, plan)):
        held.add(own.index)
    return tuple(_row(kind, plan, index) for index in sorted(held))


def _row(kind: Kind, plan: Assignment[int], index: int) -> LedgerRow:
    buffer = kind.ledger.buffers[index]
    op = kind.ledger.ops[buffer.producer] if buffer.producer is not None else None
    return LedgerRow(
        tensor=f"{buffer.dtype}[{', '.join(map(str, buffer.shape))}]",
        module=op.module if op is not None else "",
        op=op.name if op is not None else "",
        nbytes=buffer.nbytes,
        verb=verb_of(plan, buffer) if op is not None else plan.verb_of(index) or KEEP,
        seconds=_alone(kind, index),
    )


def _alone(kind: Kind, index: int) -> float | None:
    """Seconds to rebuild one buffer with every other one kept."""
    if kind.ledger.buffers[index].source in (Source.ONCE, Source.INPUT):
        return None
    try:
        ops = kind.ledger.rebuild_ops(kind.everything - {index})
    except ValueError:
        return None
    return sum(kind.seconds[op] for op in ops)


@dataclass(frozen=True, slots=True)
class TensorRow:
    """A saved tensor that several layers have alike.

    Attributes:
        row: The tensor of one of these layers; its verb is that of the first one.
        verbs: In how many of the layers each verb applies to it.
    """

    row: LedgerRow
    verbs: Mapping[str, int]

    @property
    def total(self) -> int:
        """Bytes in all of these layers without checkpointing."""
        return self.row.nbytes * sum(self.verbs.values())


def tensor_rows(problem: Problem, solution: Solution) -> tuple[TensorRow, ...]:
    """The saved tensors of all layers, equal ones together, the largest sum first.

    Where the plan stores inputs of layers elsewhere, they are among them.
    """
    used = kinds_in_use(problem, solution)
    inputs = ((problem.kinds[kind].own_input, plan) for _, kind, plan in used)
    moved = any(own is not None and own.index in plan.held for own, plan in inputs)
    rows: dict[LedgerRow, LedgerRow] = {}
    verbs: dict[LedgerRow, Counter[str]] = {}
    for numbers, kind, plan in used:
        for row in ledger_rows(problem.kinds[kind], plan, own_input=moved):
            alike = replace(row, verb=KEEP)
            rows.setdefault(alike, row)
            verbs.setdefault(alike, Counter())[row.verb] += len(numbers)
    found = (TensorRow(row, verbs[alike]) for alike, row in rows.items())
    return tuple(sorted(found, key=lambda found: -found.total))


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """The best plan at one number of held bytes; ``share`` is of what layers hold without checkpointing."""

    share: float
    solution: Solution


def frontier(problem: Problem, points: int = 12) -> tuple[FrontierPoint, ...]:
    """The best plans from the fewest held bytes to all of them, each at least as fast as the one before.

    Args:
        problem: What is planned.
        points: How many evenly spaced budgets are planned; equal plans are listed once.
    """
    most, least = held_without_checkpointing(problem), least_held(problem)
    found: list[FrontierPoint] = []
    for i in range(points):
        limit = least + (most - least) * i // max(1, points - 1)
        solution = solve(problem, Limits(held=limit))
        if not found or solution.predicted.held > found[-1].solution.predicted.held:
            found.append(FrontierPoint(solution.predicted.held / max(1, most), refined(problem, solution)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Gain:
    """What ``nbytes`` more budget would buy: added seconds a step without and with it."""

    nbytes: int
    before: float
    after: float

    @property
    def saved(self) -> float:
        """Seconds a step that it would save."""
        return self.before - self.after


def next_gain(problem: Problem, limits: Limits, solution: Solution, nbytes: int = GIB) -> Gain:
    """What ``nbytes`` (1 GiB) on top of every bound in ``limits`` would buy.

    Args:
        problem: The stack of layers and its costs.
        limits: The bounds in force, in bytes.
        solution: The plan found under them.
        nbytes: Bytes added to every bound, 1 GiB by default.
    """
    more = Limits(
        peak=None if limits.peak is None else limits.peak + nbytes,
        held=None if limits.held is None else limits.held + nbytes,
        room=None if limits.room is None else limits.room + nbytes,
    )
    return Gain(nbytes, solution.predicted.seconds, solve_refined(problem, more).predicted.seconds)


def kinds_in_use(problem: Problem, solution: Solution) -> Sequence[tuple[tuple[int, ...], int, Assignment[int]]]:
    """Runs of layers with one kind and one plan: (layer numbers, kind, plan), in forward order."""
    runs: list[tuple[tuple[int, ...], int, Assignment[int]]] = []
    for number, (kind, plan) in enumerate(zip(problem.order, solution.layers, strict=True)):
        if runs and runs[-1][1:] == (kind, plan):
            runs[-1] = ((*runs[-1][0], number), kind, plan)
        else:
            runs.append(((number,), kind, plan))
    return runs
