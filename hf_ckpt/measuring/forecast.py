"""What a policy will cost, before anything runs: held and peak bytes, and added time, from dry ledgers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..assignment import Assignment
from ..engine import select
from ..errors import ForecastError
from ..head.options import head_option, head_options
from ..planner.budget import limits_of
from ..planner.costs.assemble import assemble, under
from ..planner.costs.assess import assess
from ..planner.costs.parts import MomentParts, parts_over_step
from ..planner.costs.problem import HeadOption
from ..planner.costs.timeline import Moment, timeline
from ..planner.memory.fragmentation import FIRST_SPARE, Spare
from ..planner.solver.refine import solve_leaving
from ..planner.solver.solve import Solution
from ..policy.decision import Planned, RecomputeSegment

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from ..anatomy import Anatomy
    from ..head.options import HeadShape
    from ..ledger import ChunkedPart, LayerLedger
    from ..planner.budget import DeviceMemory
    from ..planner.costs.assess import Assessment
    from ..planner.costs.problem import Limits, Problem
    from ..planner.costs.roofline import Calibration
    from ..policy.base import Chunks
    from ..policy.resolve import ResolvedPolicy


@dataclass(frozen=True, slots=True)
class ForecastInputs:
    """Everything that a forecast reads, for one model and one size of batch.

    Attributes:
        anatomy: The stacks whose layers run on token ids.
        ledgers: What each of their layers saves, in forward order; None for a layer that cannot be traced.
        head: The loss head; None when the model has none.
        chunkable: Whether that head can run in chunks.
        rates: Rates of the device.
        memory: Bytes of the device, and those used by the weights.
        to_come: Bytes of gradients and optimizer state that will stand beside the activations at the peak.
        growing: Gradients that come up in backward, while activations go; None: they stand all along.
        chunks: In how many chunks parts of the layers run, by role, in these ledgers.
        chunked: Those parts of each layer; () where all run whole.
        cached: Bytes that the allocator of a card keeps for the stream of the gathers.
    """

    anatomy: Anatomy
    ledgers: Sequence[LayerLedger | None]
    head: HeadShape | None
    chunkable: bool
    rates: Calibration
    memory: DeviceMemory
    to_come: int
    growing: Growing | None = None
    chunks: Chunks = ()
    chunked: Sequence[Sequence[ChunkedPart]] = ()
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Growing:
    """Bytes of gradients: of each layer, those that come before the layers' and after them.

    ``gathering`` is what any layer's backward takes to gather weights and to reduce gradients; ``left`` what a step
    leaves of gradients to the optimizer, None where that is all of them.
    """

    layers: tuple[int, ...]
    head: int
    late: int
    gathering: int = 0
    left: int | None = None

    @property
    def at_step(self) -> int:
        """Gradients in the optimizer's step."""
        return sum(self.layers) + self.head + self.late if self.left is None else self.left


def forecast(inputs: ForecastInputs, policy: ResolvedPolicy) -> Assessment:
    """Forecast one policy.

    Args:
        inputs: The traced layers, the head, the rates and the memory of the device.
        policy: The resolved policy.

    Returns:
        Bytes held by the layers after forward, bytes at the peak above the model's state, added seconds a step.

    Raises:
        ForecastError: the policy works, but its cost is not known before it runs.
        BudgetError: nothing fits the budget.
    """
    return as_solution(inputs, policy)[1].predicted


def as_solution(inputs: ForecastInputs, policy: ResolvedPolicy) -> tuple[Problem, Solution]:
    """The planner's problem for this policy, and its solution: found for a budget, given for any other policy.

    Args:
        inputs: As in :func:`forecast`.
        policy: The resolved policy.

    Returns:
        The layers with their costs, and the verb of every saved tensor.

    Raises:
        ForecastError: as in :func:`forecast`.
        BudgetError: as in :func:`forecast`.
    """
    if policy.requests.chunks != inputs.chunks:
        raise ForecastError(f"`{policy.policy}` runs parts in chunks: ask `hf-ckpt plan`, or `hf-ckpt bench`")
    problem = _problem(inputs, policy)
    limits, budget = limits_for(inputs, policy, problem), policy.requests.budget
    if limits is not None and budget is not None:
        _check_all_planned(inputs, policy)
        bare = limits_of(budget, problem, inputs.memory, inputs.to_come)
        return problem, solve_leaving(problem, limits, bare)
    plans = _fixed_plans(inputs, policy)
    head = problem.heads[0]
    return problem, Solution(plans, head, assess(under(problem, plans), plans, head))


def moments(problem: Problem, solution: Solution) -> tuple[Moment, ...]:
    """The bytes alive at every moment of a step, the model's state aside; the largest is the predicted peak."""
    return timeline(under(problem, solution.layers), solution.layers, solution.head)


def parts(problem: Problem, solution: Solution) -> tuple[MomentParts, ...]:
    """The same moments, with what their bytes are for."""
    return parts_over_step(under(problem, solution.layers), solution.layers, solution.head)


def limits_for(inputs: ForecastInputs, policy: ResolvedPolicy, problem: Problem) -> Limits | None:
    """The byte limits of a ``budget`` policy; None for any other.

    Args:
        inputs: The traced layers and the memory of the device.
        policy: The resolved policy.
        problem: The stack of layers and its costs.
    """
    budget = policy.requests.budget
    if budget is None:
        return None
    return limits_of(budget, problem, inputs.memory, inputs.to_come, spare_at_first(inputs))


def spare_at_first(inputs: ForecastInputs) -> Spare:
    """What plans leave to the allocator of a card before any step showed what it takes."""
    return replace(FIRST_SPARE, nbytes=inputs.cached)


def step_seconds(inputs: ForecastInputs) -> float | None:
    """Seconds of a step without checkpointing, optimizer left out, by the same rates; None where a layer is unknown."""
    if any(ledger is None for ledger in inputs.ledgers):
        return None
    problem = assemble(inputs.ledgers, inputs.rates)
    layers = sum(problem.kind(layer).forward + problem.kind(layer).backward for layer in range(len(problem.order)))
    return layers + (_head_seconds(inputs.head, inputs.rates) if inputs.head is not None else 0.0)


def _head_seconds(head: HeadShape, rates: Calibration) -> float:
    """Forward and backward of the output embeddings: products for logits, their input and, if trained, the weights."""
    products = 3 if head.trained else 2
    rate = rates.matmul["half" if head.itemsize == 2 else "single"]
    return products * 2 * head.tokens * head.vocabulary * head.width / rate


def _problem(inputs: ForecastInputs, policy: ResolvedPolicy) -> Problem:
    if all(ledger is None for ledger in inputs.ledgers):
        raise ForecastError(
            "no layer of this model can be traced on metadata, so nothing is known before it runs: measure it with "
            "`hf-ckpt bench`"
        )
    growing = inputs.growing
    return assemble(
        inputs.ledgers,
        inputs.rates,
        gradients=None if growing is None else growing.layers,
        heads=_heads(inputs, policy),
        head_gradients=0 if growing is None else growing.head,
        late_gradients=0 if growing is None else growing.late,
        gathering=0 if growing is None else growing.gathering,
        offload=policy.requests.offload,
        chunked=inputs.chunked,
    )


def _heads(inputs: ForecastInputs, policy: ResolvedPolicy) -> tuple[HeadOption, ...]:
    """The head as the policy fixes it; a budget without ``head(n)`` may choose the number of chunks."""
    if inputs.head is None:
        return (HeadOption(1, 0),)
    chunks = policy.requests.head_chunks
    if inputs.chunkable and chunks is None and policy.requests.budget is not None:
        return head_options(inputs.head, inputs.rates.stream)
    return (head_option(inputs.head, chunks or 1 if inputs.chunkable else 1, inputs.rates.stream),)


def _check_all_planned(inputs: ForecastInputs, policy: ResolvedPolicy) -> None:
    decisions = (policy.layers[layer.info.name] for layer in inputs.anatomy.layers)
    if not all(isinstance(decision, Planned) for decision in decisions):
        raise ForecastError(
            f"`{policy.policy}` leaves only some layers to the planner: measure it with `hf-ckpt bench`"
        )


def _fixed_plans(inputs: ForecastInputs, policy: ResolvedPolicy) -> tuple[Assignment[int], ...]:
    plans: list[Assignment[int]] = []
    same: dict[Hashable, Assignment[int]] = {}  # layers that share a ledger mostly share their decision too
    for layer, ledger in zip(inputs.anatomy.layers, inputs.ledgers, strict=True):
        decision, sublayers = policy.layers[layer.info.name], layer.info.sublayers
        if isinstance(decision, RecomputeSegment):
            raise ForecastError(f"`{policy.policy}` replays several layers at once: measure it with `hf-ckpt bench`")
        key = (decision, id(ledger), tuple(sublayers.items()))
        if key not in same:
            same[key] = Assignment() if ledger is None else select(decision, ledger, sublayers)
        plans.append(same[key])
    return tuple(plans)
