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
    """A policy from its string, its dict form, or itself.

    The string is what ``str(policy)`` writes (``"attention+norm@layers(0-7)"``), the dict what ``to_dict`` returns.
    Raises PolicyError for what is neither or is malformed, BudgetError for a ``budget`` that is no memory budget.
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
