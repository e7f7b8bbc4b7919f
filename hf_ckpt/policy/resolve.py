"""Resolves a policy for a model: one frozen value that says everything it asks for. The only place that refuses one.

``apply``, ``hf-ckpt plan`` and the callback all start here, so what one refuses the others refuse in the same words.
Pure: no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ..errors import PolicyError
from .base import Requests
from .compose import Scoped, Sum, decide, parts_of
from .decision import (
    Keep,
    Planned,
    RecomputeExcept,
    RecomputeLayer,
    RecomputeSegment,
    RecomputeSublayers,
    RecomputeUnion,
)
from .platform import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .base import Policy
    from .decision import Decision, Layer, Stack
    from .platform import Platform

#: A compiled graph recomputes whole layers and sublayers; it has no single saved tensors, and no hooks between layers.
_NOT_IN_A_GRAPH = Planned | RecomputeSegment | RecomputeExcept | RecomputeUnion


@dataclass(frozen=True, slots=True)
class ResolvedPolicy:
    """Everything that a policy asks for on one model.

    Attributes:
        policy: The policy as written.
        layers: The decision of every decoder layer, by the layer's full name.
        requests: What it asks for beside the layers: a budget, chunks of the loss head, offload.
    """

    policy: Policy
    layers: Mapping[str, Decision]
    requests: Requests

    @property
    def recomputes(self) -> bool:
        """Whether some layer is not kept whole."""
        return any(not isinstance(decision, Keep) for decision in self.layers.values())


def resolve(policy: Policy, stacks: Sequence[Stack], platform: Platform) -> ResolvedPolicy:
    """Decide about every layer and collect what else the policy asks for.

    Args:
        policy: The policy.
        stacks: The stacks of decoder layers of the model.
        platform: What it has to work with beside them.

    Returns:
        The resolved policy.

    Raises:
        PolicyError: the policy contradicts itself, a part of it names no layer of this model, or it needs what the
            engine or the device cannot do.
        ModelStructureError: it needs a part that the model does not have.
    """
    terms = tuple(_terms(policy))
    requests = _requests(policy)
    resolved = ResolvedPolicy(policy, _decided(policy, stacks, requests), requests)
    for term in terms:
        _check_exists(term, stacks)
        _check_names_layers(term, stacks)
    if platform.compiled:
        for term in terms:
            _check_fits_a_graph(term, stacks)
    for part in parts_of(policy):
        part.check(resolved.requests, platform)
    _check_layers(resolved, stacks, platform)
    _check_offload(resolved)
    return resolved


def _decided(policy: Policy, stacks: Sequence[Stack], requests: Requests) -> dict[str, Decision]:
    """The decision of every layer. Without a budget to choose, offload means the input of layers recomputed whole."""
    decisions = decide(policy, stacks)
    if not requests.offload or requests.budget is not None:
        return decisions
    sent = RecomputeLayer(offload=True)
    return {name: sent if isinstance(d, RecomputeLayer) else d for name, d in decisions.items()}


def _check_offload(resolved: ResolvedPolicy) -> None:
    if not resolved.requests.offload or resolved.requests.budget is not None:
        return
    if not any(isinstance(decision, RecomputeLayer) for decision in resolved.layers.values()):
        raise PolicyError(
            f"`{resolved.policy}` leaves `offload` nothing to move: write `budget=40GiB+offload`, or `full+offload` "
            "for the inputs of layers that are recomputed whole"
        )


def _terms(policy: Policy) -> Iterator[Policy]:
    """The terms of a policy, each with the selectors that apply to it."""
    match policy:
        case Sum(terms):
            for term in terms:
                yield from _terms(term)
        case Scoped(inner, selectors):
            for term in _terms(inner):
                yield term if term is policy else Scoped(term, selectors)
        case _:
            yield policy


def _requests(policy: Policy) -> Requests:
    """What the parts ask for beside the layers. Raises PolicyError when two of them ask for the same."""
    asked: dict[str, Any] = {}
    for part in parts_of(policy):
        for name, value in _set_fields(part.requests()):
            if name in asked:
                count = sum(other.name == part.name for other in parts_of(policy))
                raise PolicyError(f"`{policy}` names `{part.name}` {count} times: name it once{_together(policy)}")
            asked[name] = value
    return Requests(**asked)


def _together(policy: Policy) -> str:
    """How one part serves all the places of a policy, where it has several."""
    places = dict.fromkeys(str(s) for term in _terms(policy) if isinstance(term, Scoped) for s in term.selectors)
    return f", for all places together: `@({'+'.join(places)})`" if len(places) > 1 else ""


def _set_fields(requests: Requests) -> Iterator[tuple[str, Any]]:
    for field in fields(requests):
        value = getattr(requests, field.name)
        if value != field.default:
            yield field.name, value


def _decisions(term: Policy, stacks: Sequence[Stack]) -> Iterator[Decision]:
    for stack in stacks:
        if term.covers(stack):
            yield from term.decide(stack).values()


def _check_exists(term: Policy, stacks: Sequence[Stack]) -> None:
    """Raise PolicyError for a layer that no stack has; where towers differ in depth, one that has it is enough."""
    for part in (term.policy, *term.selectors) if isinstance(term, Scoped) else (term,):
        missing = [part.missing(stack) for stack in stacks if term.covers(stack)]
        if missing and all(missing):
            raise PolicyError(missing[0])


def _check_names_layers(term: Policy, stacks: Sequence[Stack]) -> None:
    if not all(part.about_layers() for part in parts_of(term)) or any(True for _ in _decisions(term, stacks)):
        return
    reasons = dict.fromkeys(
        reason for stack in stacks if term.covers(stack) for part in parts_of(term) if (reason := part.why_none(stack))
    )
    why = f" ({'; '.join(reasons)})" if reasons else ""
    raise PolicyError(
        f"`{term}` names no layer of this model{why}: name some of "
        f"{', '.join(_overview(stack) for stack in stacks)}, or leave it out"
    )


def _overview(stack: Stack) -> str:
    roles = dict.fromkeys(role.value for layer in stack.layers for role in layer.sublayers)
    inside = f" with {', '.join(roles)}" if roles else ""
    return f"{stack.name} ({stack.tower.value}, {len(stack.layers)} layers{inside})"


def _check_fits_a_graph(term: Policy, stacks: Sequence[Stack]) -> None:
    if any(isinstance(decision, _NOT_IN_A_GRAPH) for decision in _decisions(term, stacks)):
        raise PolicyError(
            f"`{term}` cannot be followed inside the graph that torch_compile=True makes: switch that off, or use a "
            "policy by layer or sublayer, such as `every(2)` or `attention+norm`"
        )


def _check_layers(resolved: ResolvedPolicy, stacks: Sequence[Stack], platform: Platform) -> None:
    layers = [layer for stack in stacks for layer in stack.layers]
    for layer in layers:
        _check_union(layer, resolved.layers[layer.name], platform)


def _check_union(layer: Layer, decision: Decision, platform: Platform) -> None:
    if not isinstance(decision, RecomputeUnion) or platform.engine is Engine.TRACED:
        return
    if any(isinstance(part, RecomputeSublayers) for part in decision.parts):
        raise PolicyError(
            f"{layer.name} would keep op outputs and rebuild a whole sublayer, which torch's checkpoint cannot "
            'do in one layer: pass engine="traced" to SelectiveCkpt or apply, or give each its own layers with @, for '
            "example `dots_saveable@first(8)+attention@layers(8-)`"
        )
