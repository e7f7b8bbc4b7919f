"""Policies as values: parse, compose, serialise, decide. Pure: nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import PolicyError
from .base import LayerSelector, Policy
from .compose import decide
from .grammar import from_dict, parse_string, refuse_bare_budget, to_dict
from .registry import policies

__all__ = ["LayerSelector", "Policy", "decide", "from_dict", "parse_policy", "policies", "to_dict"]


def parse_policy(spec: str | Mapping[str, Any] | Policy) -> Policy:
    """Read a policy from its string, its dict form, or itself.

    Args:
        spec: What ``str(policy)`` writes, what ``to_dict`` returns, or a policy.

    Returns:
        The policy. It is not resolved for a model yet.

    Raises:
        PolicyError: ``spec`` is none of these, or is malformed.
        BudgetError: The value of a ``budget`` is no memory budget.

    Example:
        >>> str(parse_policy("attention + norm@layers(0-7)"))
        'attention+norm@layers(0-7)'
    """
    match spec:
        case Policy():
            return spec
        case str():
            return parse_string(spec)
        case Mapping():
            return from_dict(spec)
        case int() | float():
            refuse_bare_budget(str(spec))
    raise PolicyError(
        f"a policy is a string, a dict or a Policy, not {type(spec).__name__}: write for example 'attention+norm' or "
        "'budget=0.5'"
    )
