"""How policies combine: ``a + b`` rebuilds what either rebuilds, ``a @ s`` restricts ``a`` to the layers of ``s``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..errors import PolicyError
from .base import LayerSelector, Policy
from .decision import (
    Decision,
    Keep,
    Planned,
    RecomputeExcept,
    RecomputeLayer,
    RecomputeSegment,
    RecomputeSublayers,
    RecomputeUnion,
    Stack,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Scoped(Policy):
    """``policy@selector@selector``: the policy, on the layers that every selector chooses."""

    name: ClassVar[str] = "@"
    policy: Policy
    selectors: tuple[LayerSelector, ...]

    def __str__(self) -> str:
        inner = f"({self.policy})" if isinstance(self.policy, Sum) else str(self.policy)
        return "@".join([inner, *map(str, self.selectors)])

    def covers(self, stack: Stack) -> bool:
        """By the towers that its selectors name, else by the inner policy's."""
        named = [selector for selector in self.selectors if names_tower(selector)]
        return all(s.covers(stack) for s in named) if named else self.policy.covers(stack)

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """The inner policy's decisions, restricted."""
        chosen = frozenset.intersection(*(s.select(stack) for s in self.selectors))
        return {i: d for i, d in self.policy.decide(stack).items() if i in chosen}


@dataclass(frozen=True, slots=True)
class AnyOf(LayerSelector):
    """``(a+b)`` behind ``@``: the layers that any of these selectors names."""

    name: ClassVar[str] = "+"
    selectors: tuple[LayerSelector, ...]

    def __str__(self) -> str:
        return f"({'+'.join(map(str, self.selectors))})"

    def covers(self, stack: Stack) -> bool:
        """Whether one of the selectors does."""
        return any(selector.covers(stack) for selector in self.selectors)

    def select(self, stack: Stack) -> frozenset[int]:
        """The union over the selectors that speak about this stack."""
        return frozenset().union(*(s.select(stack) for s in self.selectors if s.covers(stack)))


def names_tower(selector: LayerSelector) -> bool:
    """Whether a selector says which towers it is about."""
    if isinstance(selector, AnyOf):
        return any(map(names_tower, selector.selectors))
    return selector.towers is not None


@dataclass(frozen=True, slots=True)
class Sum(Policy):
    """``a+b+...``: every layer rebuilds what any of the terms rebuilds there."""

    name: ClassVar[str] = "+"
    terms: tuple[Policy, ...]

    def __str__(self) -> str:
        return "+".join(map(str, self.terms))

    def covers(self, stack: Stack) -> bool:
        """Whether a term does."""
        return any(term.covers(stack) for term in self.terms)

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """The union of the terms' decisions. Raises PolicyError where two of them contradict each other."""
        merged: dict[int, Decision] = {}
        for term in self.terms:
            if not term.covers(stack):
                continue
            for index, decision in term.decide(stack).items():
                merged[index] = merge(merged.get(index, Keep()), decision, where=f"layer {index} of {stack.name}")
        return merged


def parts_of(policy: Policy) -> tuple[Policy, ...]:
    """The policies that a policy is put together from, below sums and ``@``; the policy itself when it is simple."""
    match policy:
        case Sum(terms):
            return tuple(part for term in terms for part in parts_of(term))
        case Scoped(inner):
            return parts_of(inner)
    return (policy,)


def merge(a: Decision, b: Decision, *, where: str) -> Decision:
    """The decision that rebuilds what ``a`` or ``b`` rebuilds. Raises PolicyError when no single region does both.

    Args:
        a: A decision on a layer.
        b: Another one on the same layer.
        where: Name of the layer, for the message.
    """
    match a, b:
        case (Keep(), other) | (other, Keep()):
            return other
        case (same, other) if same == other:
            return same
        case (Planned(), _) | (_, Planned()):
            raise PolicyError(
                f"{where} would be the planner's and another policy's at once: `budget` decides about every layer it "
                "is given, so give each its own layers with @, for example `full@first(8)+budget=0.5@layers(8-)`"
            )
        case (RecomputeSegment(), _) | (_, RecomputeSegment()):
            raise PolicyError(
                f"{where} would belong to a segment and to another recompute at once: give `segments` and the other "
                "policy different layers with @, for example `segments(2)@first(8)+norm@layers(8-)`"
            )
        case (RecomputeLayer(), _) | (_, RecomputeLayer()):
            return RecomputeLayer()
    return _union([*_parts(a), *_parts(b)])


def _parts(decision: Decision) -> tuple[RecomputeSublayers | RecomputeExcept, ...]:
    match decision:
        case RecomputeUnion(parts):
            return parts
        case RecomputeSublayers() | RecomputeExcept():
            return (decision,)
    raise TypeError(f"{decision!r} has no parts")


def _union(parts: list[RecomputeSublayers | RecomputeExcept]) -> Decision:
    """Sublayers become one part, equal rules one rule."""
    roles = [part.roles for part in parts if isinstance(part, RecomputeSublayers)]
    rules = dict.fromkeys(part for part in parts if isinstance(part, RecomputeExcept))
    merged: tuple[RecomputeSublayers | RecomputeExcept, ...]
    merged = (*rules, *([RecomputeSublayers(frozenset.union(*roles))] if roles else []))
    return merged[0] if len(merged) == 1 else RecomputeUnion(merged)


def decide(policy: Policy, stacks: Iterable[Stack]) -> dict[str, Decision]:
    """The decision of every layer of every stack by full name; :class:`Keep` where the policy is silent.

    Raises PolicyError when the policy names layers or sublayers that a stack has not, or contradicts itself.
    """
    decisions: dict[str, Decision] = {}
    for stack in stacks:
        spoken = policy.decide(stack) if policy.covers(stack) else {}
        for layer in stack.layers:
            decisions[layer.name] = spoken.get(layer.index, Keep())
    return decisions
