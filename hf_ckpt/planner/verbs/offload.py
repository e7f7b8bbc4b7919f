"""Offload: buffers wait in host memory. What the transfers take beside forward and backward is added to the step.

The offloaded buffers of the next layer come back while a layer is in backward, so there is room for one layer's. In
forward two layers' are on their way at most, and at the loss they may still be there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..verb import StoringVerb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...assignment import Assignment
    from ..costs.problem import Problem
    from ..solver.program import Program, Row


class Offload(StoringVerb):
    """The buffer is on the host between forward and backward."""

    name = "offload"
    layers_at_loss = 2
    takes_inputs = True

    def is_open(self, problem: Problem) -> bool:
        """Where the policy asks for it and the device has a link that was measured."""
        return problem.link is not None

    def stack_seconds(self, problem: Problem, plans: Sequence[Assignment[int]]) -> float:
        """What does not hide behind the forward, and behind the backward."""
        if problem.link is None:
            return 0.0
        kinds = [problem.kinds[k] for k in problem.order]
        bytes_moved = sum(
            kind.ledger.buffers[b].nbytes for kind, plan in zip(kinds, plans, strict=True) for b in plan.of(self.name)
        )
        moved = bytes_moved / problem.link.bytes_per_second
        return max(0.0, moved - sum(k.forward for k in kinds)) + max(0.0, moved - sum(k.backward for k in kinds))

    def ready_bytes(self, problem: Problem, plans: Sequence[Assignment[int]]) -> int:
        """Room for the layer that comes back one layer ahead: per kind, all that any of its layers offloads."""
        used: dict[int, set[int]] = {}
        for k, plan in zip(problem.order, plans, strict=True):
            used.setdefault(k, set()).update(plan.of(self.name))
        return max((sum(problem.kinds[k].ledger.buffers[b].nbytes for b in bs) for k, bs in used.items()), default=0)

    def add_room(self, program: Program) -> Row:
        """A variable for the bytes of the layer that comes back."""
        program.room[self.name] = program.variable(np.inf, integral=False)
        return {program.room[self.name]: 1.0}

    def add_costs(self, program: Program) -> None:
        """Transfers cost what waits at the end of forward and of backward; a kind's room is all that it moves.

        The host has room for what all layers move.
        """
        problem, moved, there = program.problem, dict[int, float](), dict[int, float]()
        assert problem.link is not None
        for group in program.groups:
            staged: Row = {}
            kind = problem.kinds[group.kind]
            variables = dict(group.stored[self.name])
            if self.name in group.inputs and kind.own_input is not None:
                variables[kind.own_input.index] = group.inputs[self.name]
            for b, variable in variables.items():
                nbytes = kind.ledger.buffers[b].nbytes
                moved[variable] = nbytes / problem.link.bytes_per_second
                there[variable] = nbytes / program.unit
                flag = program.variable(1)
                staged[flag] = nbytes / program.unit
                program.at_most({variable: 1.0, flag: -float(len(group.layers))}, 0.0)
            program.at_most(staged | {program.room[self.name]: -1.0}, 0.0)
        if problem.link.nbytes is not None:
            program.at_most(there, problem.link.nbytes / program.unit)
        kinds = [problem.kinds[k] for k in problem.order]
        for window in (sum(k.forward for k in kinds), sum(k.backward for k in kinds)):
            waiting = program.variable(np.inf, 1.0, integral=False)
            program.at_most(moved | {waiting: -1.0}, window)
