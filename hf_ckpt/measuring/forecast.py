"""What a policy will cost, before anything runs: held and peak bytes, and added time, from dry ledgers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engine import select
from ..errors import PolicyError
from ..head.options import head_option, head_options
from ..planner.assemble import assemble, under
from ..planner.budget import DeviceMemory, limits_of
from ..planner.problem import Assessment, HeadOption, LayerPlan, Limits, Problem, assess
from ..planner.refine import solve_refined
from ..planner.solve import Solution
from ..policies.budget import BudgetPolicy
from ..policies.head import HeadPolicy
from ..policy import Policy, decide
from ..policy.compose import parts_of
from ..policy.decision import Planned, RecomputeSegment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..anatomy import Anatomy
    from ..head.options import HeadShape
    from ..ledger import LayerLedger
    from ..planner.cost import Calibration


@dataclass(frozen=True, slots=True)
class Outlook:
    """Everything a forecast needs: the layers' ledgers, the head's shape, the device's rates and memory.

    ``to_come`` is the bytes of gradients and optimizer state that will stand beside the activations at the peak.
    """

    anatomy: Anatomy
    ledgers: Sequence[LayerLedger | None]
    head: HeadShape | None
    rates: Calibration
    memory: DeviceMemory
    to_come: int


def forecast(outlook: Outlook, policy: Policy) -> Assessment:
    """Bytes held by the layers after forward, bytes at the peak above the model's state, added seconds a step.

    Raises PolicyError for segments, whose replay spans layers, and BudgetError when nothing fits.
    """
    return as_solution(outlook, policy)[1].predicted


def as_solution(outlook: Outlook, policy: Policy) -> tuple[Problem, Solution]:
    """The planner's problem for this policy, and its solution: found for a budget, given for any other policy."""
    problem = _problem(outlook, policy)
    limits = limits_for(outlook, policy, problem)
    if limits is not None:
        _check_all_planned(outlook, policy)
        return problem, solve_refined(problem, limits)
    plans = _fixed_plans(outlook, policy)
    head = problem.heads[0]
    return problem, Solution(plans, head, assess(under(problem, plans), plans, head))


def limits_for(outlook: Outlook, policy: Policy, problem: Problem) -> Limits | None:
    """The byte limits of a ``budget`` policy; None for any other."""
    budget = next((term for term in parts_of(policy) if isinstance(term, BudgetPolicy)), None)
    return None if budget is None else limits_of(budget.budget, problem, outlook.memory, outlook.to_come)


def _problem(outlook: Outlook, policy: Policy) -> Problem:
    return assemble(outlook.ledgers, outlook.rates, heads=_heads(outlook, policy))


def _heads(outlook: Outlook, policy: Policy) -> tuple[HeadOption, ...]:
    """The head as the policy fixes it; a budget without ``head(n)`` may choose the number of chunks."""
    if outlook.head is None:
        return (HeadOption(1, 0),)
    terms = parts_of(policy)
    chunked = next((term for term in terms if isinstance(term, HeadPolicy)), None)
    if chunked is None and any(isinstance(term, BudgetPolicy) for term in terms):
        return head_options(outlook.head, outlook.rates.stream)
    return (head_option(outlook.head, chunked.chunks if chunked else 1, outlook.rates.stream),)


def _check_all_planned(outlook: Outlook, policy: Policy) -> None:
    decisions = decide(policy, outlook.anatomy.stacks).values()
    if not all(isinstance(decision, Planned) for decision in decisions):
        raise PolicyError(f"`{policy}` leaves only some layers to the planner: measure it with `hf-ckpt bench`")


def _fixed_plans(outlook: Outlook, policy: Policy) -> tuple[LayerPlan, ...]:
    decisions = decide(policy, outlook.anatomy.stacks)
    plans = []
    for layer, ledger in zip(outlook.anatomy.layers, outlook.ledgers, strict=True):
        decision = decisions[layer.info.name]
        if isinstance(decision, RecomputeSegment):
            raise PolicyError(f"`{policy}` replays several layers at once: measure it with `hf-ckpt bench`")
        kept = frozenset() if ledger is None else select(decision, ledger, layer.info.sublayers).kept
        plans.append(LayerPlan(kept))
    return tuple(plans)
