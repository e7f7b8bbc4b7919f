"""The planner's problem as a linear program: variables count layers, bytes are scaled for the solver's tolerance.

The two bounded quantities, peak and held bytes, are variables themselves, so that either can be minimised.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from ..ledger import Source
from .program import Group, Program, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..ledger import Buffer, Op
    from .problem import Kind, Limits, Problem


def build(problem: Problem, limits: Limits) -> Program:
    """The program whose solutions are the plans within ``limits``.

    Where the peak has no bound, no moment tells layers of one kind apart: the last ones then keep most.
    """
    kinds = [problem.kinds[k] for k in problem.order]
    saved = sum(kind.ledger.buffers[b].nbytes for kind in kinds for b in kind.everything)
    program = Program(problem, unit=max(1.0, saved / 1e6))
    program.peak = program.variable(_scaled(limits.peak, program.unit), integral=False)
    program.held = program.variable(_scaled(limits.held, program.unit), integral=False)
    room = {program.peak: -1.0} | _add_prefetch(program)
    held: Row = {}
    constant, start = 0.0, 0
    moments = _moments(problem) if limits.peak is not None else []
    for moment in [*moments, len(problem.order)]:
        for kind, layers in _by_kind(problem, range(start, moment)):
            expression, fixed = _add_group(program, kind, layers)
            held |= expression
            constant += fixed
        if moment < len(problem.order):
            alive = (problem.shared + problem.backward_bytes[moment]) / program.unit
            program.at_most(room | held, -constant - alive)
        start = moment
    _add_head(program, room | held, constant + problem.shared / program.unit)
    program.at_most(held | {program.held: -1.0}, -constant)
    _add_transfers(program)
    return program


def _scaled(bound: int | None, unit: float) -> float:
    return np.inf if bound is None else bound / unit


def _moments(problem: Problem) -> list[int]:
    """The layers in whose backward the peak may be, ascending: first and last of a run, unless a later one is worse."""
    order, alive = problem.order, problem.backward_bytes
    last = len(order) - 1
    ends = [i for i in range(last + 1) if i in (0, last) or not order[i - 1] == order[i] == order[i + 1]]
    moments: list[int] = []
    for i in reversed(ends):
        if not moments or alive[i] > alive[moments[-1]]:
            moments.append(i)
    return moments[::-1]


def _by_kind(problem: Problem, layers: Iterable[int]) -> Iterable[tuple[int, tuple[int, ...]]]:
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for layer in layers:
        groups[problem.order[layer]].append(layer)
    return ((kind, tuple(members)) for kind, members in groups.items())


def _add_group(program: Program, kind_index: int, layers: tuple[int, ...]) -> tuple[Row, float]:
    """Add the variables of a group; returns the bytes it holds as expression and constant."""
    problem, kind, count = program.problem, program.problem.kinds[kind_index], len(layers)
    ledger, unit = kind.ledger, program.unit
    needs = _replayable(kind)
    group = Group(kind_index, layers, {}, {})
    program.groups.append(group)
    for op, predecessors in needs.items():
        group.again[op] = program.variable(count, kind.seconds[op])
        for p in predecessors:
            program.at_most({group.again[op]: 1.0, group.again[p]: -1.0}, 0.0)
    held: Row = {}
    for b in sorted(kind.everything):
        producer, nbytes = ledger.buffers[b].producer, ledger.buffers[b].nbytes / unit
        freeing = group.again.get(producer) if producer is not None else None
        if freeing is not None:
            held[freeing] = held.get(freeing, 0.0) - nbytes
        if problem.link is not None:
            group.offload[b] = moved = program.variable(count)
            held[moved] = -nbytes
            program.at_most({moved: 1.0} | ({freeing: 1.0} if freeing is not None else {}), count)
    _add_overhead(program, group, needs)
    constant = count * sum(ledger.buffers[b].nbytes for b in kind.everything) / unit
    return held | _add_input(program, group), constant + _fixed_input(kind) * count / unit


def _replayable(kind: Kind) -> dict[int, tuple[int, ...]]:
    """The ops worth running again, in program order, each with the ops that must then run too.

    An op that reads what no op made, or what comes from an op that must not run twice, and that autograd did not save,
    cannot run again.
    """
    ledger = kind.ledger
    found: dict[int, tuple[int, ...]] = {}
    for op in ledger.ops:
        unsaved = [b for b in map(ledger.buffers.__getitem__, op.inputs) if _made_unsaved(b)]
        producers = {b.producer for b in unsaved}
        if op.rebuildable and all(p in found for p in producers):
            found[op.index] = tuple(sorted(p for p in producers if p is not None))
    useful: set[int] = set()
    for op in reversed(ledger.ops):
        if op.index in found and (op.index in useful or any(_frees(ledger.buffers[b], op) for b in op.outputs)):
            useful |= {op.index, *found[op.index]}
    return {o: p for o, p in found.items() if o in useful}


def _made_unsaved(buffer: Buffer) -> bool:
    return buffer.source in (Source.ACTIVATION, Source.RANDOM) and not buffer.saved


def _frees(buffer: Buffer, op: Op) -> bool:
    return bool(buffer.saved) and buffer.producer == op.index and buffer.source is Source.ACTIVATION


def _add_overhead(program: Program, group: Group, needs: Mapping[int, tuple[int, ...]]) -> None:
    """Count the layers that replay at all."""
    if program.problem.overhead and needs:
        replaying = program.variable(len(group.layers), program.problem.overhead)
        for op, predecessors in needs.items():
            if not predecessors:
                program.at_most({group.again[op]: 1.0, replaying: -1.0}, 0.0)


def _fixed_input(kind: Kind) -> int:
    """Bytes of the layer's input when autograd saves it whatever the plan."""
    own = kind.own_input
    return own.nbytes if own is not None and own.saved else 0


def _add_input(program: Program, group: Group) -> Row:
    """Count the layers that hold their input only because a rebuild reads it."""
    kind = program.problem.kinds[group.kind]
    own = kind.own_input
    if own is None or own.saved:
        return {}
    readers = [v for op, v in group.again.items() if own.index in kind.ledger.ops[op].inputs]
    if not readers:
        return {}
    holding = program.variable(len(group.layers))
    for reader in readers:
        program.at_most({reader: 1.0, holding: -1.0}, 0.0)
    return {holding: own.nbytes / program.unit}


def _add_head(program: Program, alive: Row, constant: float) -> None:
    """Choose one option for the loss head, which is alive on top of all that the layers hold."""
    program.heads = [program.variable(1, option.seconds) for option in program.problem.heads]
    sizes = [option.nbytes / program.unit for option in program.problem.heads]
    one = dict.fromkeys(program.heads, 1.0)
    program.at_most(one, 1.0)
    program.at_most(dict.fromkeys(one, -1.0), -1.0)
    program.at_most(alive | dict(zip(program.heads, sizes, strict=True)), -constant)


def _add_prefetch(program: Program) -> Row:
    """Room for the offloaded buffers of one layer, which come back while the layer behind it is in backward."""
    if program.problem.link is None:
        return {}
    program.room = program.variable(np.inf, integral=False)
    return {program.room: 1.0}


def _add_transfers(program: Program) -> None:
    """Transfers cost what does not hide behind the forward and behind the backward, and room for one layer."""
    problem = program.problem
    if problem.link is None:
        return
    moved: Row = {}
    staged: dict[int, Row] = {}
    flags: dict[tuple[int, int], int] = {}
    for group in program.groups:
        for b, variable in group.offload.items():
            nbytes = problem.kinds[group.kind].ledger.buffers[b].nbytes
            moved[variable] = nbytes / problem.link.bytes_per_second
            if (group.kind, b) not in flags:
                flags[group.kind, b] = program.variable(1)
            flag = flags[group.kind, b]
            staged.setdefault(group.kind, {})[flag] = nbytes / program.unit
            program.at_most({variable: 1.0, flag: -float(len(group.layers))}, 0.0)
    for row in staged.values():
        program.at_most(row | {program.room: -1.0}, 0.0)
    kinds = [problem.kinds[k] for k in problem.order]
    for window in (sum(k.forward for k in kinds), sum(k.backward for k in kinds)):
        waiting = program.variable(np.inf, 1.0, integral=False)
        program.at_most(moved | {waiting: -1.0}, window)
