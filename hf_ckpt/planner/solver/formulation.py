"""The planner's problem as a linear program: variables count layers, bytes are scaled for the solver's tolerance.

The two bounded quantities, peak and held bytes, are variables themselves, so that either can be minimised.

Of every kind, the first layers rebuild. So for each op the number of layers that run it again says all there is to say,
and is the only integer. Which of them lie before a moment that can peak is left to the linear program: it takes as many
as there are, which is what the plan then does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..verb import between_verbs
from .peak_candidates import peak_candidates
from .program import Group, Program, Row
from .replayable import Replayable, replayable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..costs.problem import Kind, Limits, Problem


def build(problem: Problem, limits: Limits) -> Program:
    """The program whose solutions are the plans within ``limits``."""
    kinds = [problem.kinds[k] for k in problem.order]
    saved = sum(kind.ledger.buffers[b].nbytes for kind in kinds for b in kind.everything)
    program = Program(problem, unit=max(1.0, saved / 1e6))
    program.peak = program.variable(_scaled(limits.peak, program.unit), integral=False)
    program.held = program.variable(_scaled(limits.held, program.unit), integral=False)
    sizes = _add_heads(program)
    room = {program.peak: -1.0}
    for verb in between_verbs(problem):
        room |= verb.add_room(program)
    room |= _other_forwards(program)
    peaks = peak_candidates(problem) if limits.peak is not None else []
    spans = [range(a, b) for a, b in zip([0, *peaks], [*peaks, len(problem.order)], strict=True)]
    held: Row = {}
    constant = 0.0
    parts = _add_kinds(program, spans)
    for span, part in zip(spans, parts, strict=True):
        held = held | part
        constant += sum(_constant_bytes(kinds[layer]) for layer in span) / program.unit
        if span.stop < len(problem.order):
            alive = (problem.always + problem.backward_bytes[span.stop]) / program.unit
            program.at_most(room | held, -constant - alive)
    program.at_most(room, -(problem.always + problem.all_gradients) / program.unit)
    heads = {head: room.get(head, 0.0) + size for head, size in sizes.items()}
    waiting = (verb for verb in between_verbs(problem) if verb.name in program.room)
    at_loss = {program.room[verb.name]: float(verb.layers_at_loss) for verb in waiting}
    program.at_most(room | at_loss | held | heads, -constant - problem.always / program.unit)
    program.at_most(held | {program.held: -1.0}, -constant)
    program.freed = {variable: -units for variable, units in held.items() if units < 0}
    for verb in between_verbs(problem):
        verb.add_costs(program)
    return program


def _scaled(bound: int | None, unit: float) -> float:
    return np.inf if bound is None else bound / unit


def _constant_bytes(kind: Kind) -> int:
    """Bytes that a layer holds when it keeps everything."""
    own = kind.own_input
    fixed = own.nbytes if own is not None and own.saved else 0
    return kind.further_inputs + fixed + sum(kind.ledger.buffers[b].nbytes for b in kind.everything)


def _add_kinds(program: Program, spans: Sequence[range]) -> list[Row]:
    """Add the variables of every kind; returns, for every span of layers, how the plan changes what they hold."""
    problem, rows = program.problem, [Row() for _ in spans]
    for index in dict.fromkeys(problem.order):
        layers = tuple(i for i, k in enumerate(problem.order) if k == index)
        work = replayable(problem.kinds[index])
        group = Group(index, layers, {}, {verb.name: {} for verb in between_verbs(problem)}, {})
        program.groups.append(group)
        _add_group(program, group, work)
        parts = [(row, sum(problem.order[i] == index for i in span)) for row, span in zip(rows, spans, strict=True)]
        present = [(row, count) for row, count in parts if count]
        _add_freed(program, group, work, present)
    return rows


def _add_group(program: Program, group: Group, work: Replayable) -> None:
    """Count, for each op of a kind, the layers that run it again."""
    problem, kind, count = program.problem, program.problem.kinds[group.kind], len(group.layers)
    for op in reversed(list(work.needs)):
        # What only one op needs, and what frees nothing itself, runs again where that op does.
        follows = work.follows.get(op)
        group.again[op] = program.variable(count) if follows is None else group.again[follows]
        program.add_seconds(group.again[op], kind.seconds[op])
    for op, predecessors in work.needs.items():
        for p in predecessors:
            if group.again[op] != group.again[p]:
                program.at_most({group.again[op]: 1.0, group.again[p]: -1.0}, 0.0)
    if problem.overhead and work.needs and not kind.is_counted:
        replaying = program.variable(count, problem.overhead)
        for op, predecessors in work.needs.items():
            if not predecessors:
                program.at_most({group.again[op]: 1.0, replaying: -1.0}, 0.0)
    for b in sorted(kind.everything) if group.stored else ():
        for variables in group.stored.values():
            variables[b] = program.variable(count)
        producer = kind.ledger.buffers[b].producer
        others = {group.again[producer]: 1.0} if producer in group.again else {}
        program.at_most({variables[b]: 1.0 for variables in group.stored.values()} | others, count)
    if kind.ledger.movable_input is not None and (kind.ledger.movable_input.saved or work.input_readers):
        for verb in between_verbs(problem):
            if verb.takes_inputs:
                group.inputs[verb.name] = program.variable(count)
        if group.inputs:
            program.at_most(dict.fromkeys(group.inputs.values(), 1.0), count)


def _add_freed(program: Program, group: Group, work: Replayable, parts: Sequence[tuple[Row, int]]) -> None:
    """Share the layers that do not keep out to the parts of the stack, and count there what they do not hold.

    ``parts`` are rows, one a part, and the number of the kind's layers in it.
    """
    buffers, unit = program.problem.kinds[group.kind].ledger.buffers, program.unit
    again = {op: _shared_out(program, group.again[op], parts) for op in work.frees}
    stored = [
        (verb, {b: _shared_out(program, variable, parts) for b, variable in group.stored[verb.name].items()})
        for verb in between_verbs(program.problem)
    ]
    inputs = [
        (_shared_out(program, group.inputs[verb.name], parts), work.input_bytes - verb.held_bytes(own))
        for verb in between_verbs(program.problem)
        if verb.name in group.inputs and (own := program.problem.kinds[group.kind].own_input) is not None
    ]
    for place, (row, count) in enumerate(parts):
        for op, freed in work.frees.items():
            row[again[op][place]] = row.get(again[op][place], 0.0) - freed / unit
        for b in stored[0][1] if stored else ():
            nbytes, producer = buffers[b].nbytes, buffers[b].producer
            row |= {shared[b][place]: (verb.held_bytes(buffers[b]) - nbytes) / unit for verb, shared in stored}
            if len(parts) > 1 and (producer in again or len(stored) > 1):
                others = {again[producer][place]: 1.0} if producer in again else {}
                program.at_most({shared[b][place]: 1.0 for _, shared in stored} | others, count)
        row |= {shared[place]: -freed / unit for shared, freed in inputs}
        gone = dict.fromkeys((shared[place] for shared, _ in inputs), 1.0)
        if work.input_readers:
            holding = program.variable(count, integral=False)
            for op in work.input_readers:
                program.at_most({again[op][place]: 1.0, holding: -1.0}, 0.0)
            row[holding] = work.input_bytes / unit
            if gone:
                program.at_most(gone | {holding: -1.0}, 0.0)


def _shared_out(program: Program, total: int, parts: Sequence[tuple[Row, int]]) -> list[int]:
    """A variable for each part, at most ``total`` in all."""
    if len(parts) == 1:
        return [total]
    found = [program.variable(count, integral=False) for _, count in parts]
    program.at_most(dict.fromkeys(found, 1.0) | {total: -1.0}, 0.0)
    return found


def _add_heads(program: Program) -> Row:
    """Choose one option for the loss head; returns what each has alive on top of all that the layers hold."""
    program.heads = [program.variable(1, option.seconds) for option in program.problem.heads]
    one = dict.fromkeys(program.heads, 1.0)
    program.at_most(one, 1.0)
    program.at_most(dict.fromkeys(one, -1.0), -1.0)
    sizes = (option.nbytes / program.unit for option in program.problem.heads)
    return dict(zip(program.heads, sizes, strict=True))


def _other_forwards(program: Program) -> Row:
    """What the other forwards that wait for the same backward hold, all along."""
    others = program.problem.forwards - 1
    if not others:
        return {}
    options = zip(program.heads, program.problem.heads, strict=True)
    return {program.held: others} | {head: others * option.held / program.unit for head, option in options}
