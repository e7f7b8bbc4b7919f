"""What a verb costs: bytes held, seconds added, and the room for what must be ready when backward asks for it.

A verb is one file in ``verbs/`` here and one in the engine's. Keeping and making again are what the linear program
starts from: of every kind the first layers run ops again, the last ones keep. A verb that stores lies between them.
"""

from __future__ import annotations

from abc import ABC
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from ..assignment import KEEP
from ..discovery import one_of_each_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..assignment import Assignment
    from ..ledger import Buffer
    from .costs.problem import Kind, Problem
    from .solver.program import Program, Row


class Verb(ABC):
    """The costs of one verb; each is nothing unless the verb says so. The exact costs and the program's must agree."""

    name: ClassVar[str]
    #: Of how many layers there is at the loss what :meth:`ready_bytes` counts of one.
    layers_at_loss: ClassVar[int] = 1

    def layer_held(self, kind: Kind, plan: Assignment[int]) -> int:
        """Bytes that one layer holds on the device between its forward and its backward because of this verb."""
        return 0

    def layer_seconds(self, problem: Problem, kind: Kind, plan: Assignment[int]) -> float:
        """Seconds that this verb adds to a step for one layer."""
        return 0.0

    def stack_seconds(self, problem: Problem, plans: Sequence[Assignment[int]]) -> float:
        """Seconds that this verb adds for all layers together, one plan a layer in forward order."""
        return 0.0

    def ready_bytes(self, problem: Problem, plans: Sequence[Assignment[int]]) -> int:
        """Bytes alive all along the backward for what must be there before the layer that needs it begins."""
        return 0


class StoringVerb(Verb):
    """A verb under which backward needs no op to run again.

    With ``takes_inputs`` it may store a layer's own input too, which is held for nothing but this layer's backward.
    """

    takes_inputs: ClassVar[bool] = False

    def is_open(self, problem: Problem) -> bool:
        """Whether plans of this problem may use it."""
        return True

    def held_bytes(self, buffer: Buffer) -> int:
        """Bytes on the device for a buffer that this verb stores."""
        return 0

    def layer_held(self, kind: Kind, plan: Assignment[int]) -> int:
        """Bytes of all the layer's buffers that this verb stores."""
        return sum(self.held_bytes(kind.ledger.buffers[b]) for b in plan.of(self.name))

    def add_room(self, program: Program) -> Row:
        """Add what :meth:`ready_bytes` needs before the layers are in the program; returns that room."""
        return {}

    def add_costs(self, program: Program) -> None:
        """Add the seconds of what the program's groups have in ``stored[self.name]``, and bind the room."""
        return


class ReplayingVerb(Verb):
    """A verb under which ops run again in backward."""

    def makes(self, buffer: Buffer) -> bool:
        """Whether this is the verb of ``buffer`` when no other verb stores it."""
        raise NotImplementedError


def loss_bytes(problem: Problem, plans: Sequence[Assignment[int]]) -> int:
    """Bytes alive at the loss beside :meth:`Verb.ready_bytes` of all verbs."""
    return sum((verb.layers_at_loss - 1) * verb.ready_bytes(problem, plans) for verb in verbs())


@cache
def verbs() -> tuple[Verb, ...]:
    """Every verb in ``verbs/``, by name.

    Raises:
        TypeError: A file there does not define exactly one verb.
    """
    from . import verbs as folder  # late: its files import this one

    return tuple(sorted(one_of_each_file(folder, Verb), key=lambda verb: verb.name))


def between_verbs(problem: Problem) -> tuple[StoringVerb, ...]:
    """The verbs besides keeping that plans of ``problem`` may store with."""
    storing = (verb for verb in verbs() if isinstance(verb, StoringVerb) and verb.name != KEEP)
    return tuple(verb for verb in storing if verb.is_open(problem))


def verb_of(plan: Assignment[int], buffer: Buffer) -> str:
    """The name of what happens to ``buffer`` under ``plan``."""
    replaying = (verb for verb in verbs() if isinstance(verb, ReplayingVerb))
    return plan.verb_of(buffer.index) or next(verb.name for verb in replaying if verb.makes(buffer))
