"""Rebuild: ops run again in backward, for their seconds and for the layer's input where one of them reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...assignment import REBUILD
from ...ledger import Source
from ..verb import ReplayingVerb

if TYPE_CHECKING:
    from ...assignment import Assignment
    from ...ledger import Buffer
    from ..costs.problem import Kind, Problem


class Rebuild(ReplayingVerb):
    """The buffer is made again by the ops behind it, from what is held.

    Ops are shared: one that several buffers need runs once, draws among them. So the costs are those of all the ops
    that a plan runs again.
    """

    name = REBUILD

    def makes(self, buffer: Buffer) -> bool:
        """Whatever no random number went into at its own op."""
        return buffer.source is not Source.RANDOM

    def layer_held(self, kind: Kind, plan: Assignment[int]) -> int:
        """Bytes of the layer's input, when an op that runs again reads it or autograd saves it anyway.

        One that another verb stores is that verb's.

        What else only this layer is given counts under every plan: nearly all of it is saved by some norm.
        """
        own = kind.own_input
        if own is None:
            return 0
        is_held = own.index not in plan.held and needs_input(kind, plan)
        return kind.further_inputs + (own.nbytes if is_held else 0)

    def layer_seconds(self, problem: Problem, kind: Kind, plan: Assignment[int]) -> float:
        """Seconds of the ops, and of replaying anything at all, which the times of counted pieces have in them."""
        ops = rebuilt_ops(kind, plan)
        return sum(kind.seconds[op] for op in ops) + (problem.overhead if ops and not kind.is_counted else 0.0)


def needs_input(kind: Kind, plan: Assignment[int]) -> bool:
    """Whether backward needs the layer's own input: autograd saves it, or an op that runs again reads it."""
    own = kind.own_input
    return own is not None and (bool(own.saved) or kind.reads_input(rebuilt_ops(kind, plan)))


def rebuilt_ops(kind: Kind, plan: Assignment[int]) -> frozenset[int]:
    """The ops that run again under this plan.

    Raises:
        ValueError: One of them must not run twice.
    """
    return kind.ledger.rebuild_ops(plan.held)
