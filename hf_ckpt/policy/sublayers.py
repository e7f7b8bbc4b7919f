"""Shared by the policies that name sublayers: recompute some roles in every layer that has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import PolicyError
from .decision import Decision, RecomputeSublayers, Role, Stack

if TYPE_CHECKING:
    from collections.abc import Mapping


def recompute_roles(stack: Stack, *roles: Role) -> Mapping[int, Decision]:
    """Recompute these roles wherever a layer has one of them. Raises PolicyError when no layer does."""
    decisions: dict[int, Decision] = {}
    for layer in stack.layers:
        present = frozenset(role for role in roles if layer.sublayers.get(role))
        if present:
            decisions[layer.index] = RecomputeSublayers(present)
    if not decisions:
        wanted = " or ".join(roles)
        classes = ", ".join(sorted({layer.class_name for layer in stack.layers}))
        raise PolicyError(
            f"no layer of {stack.name} ({classes}) has a sublayer of role {wanted}: "
            "use a whole-layer policy such as `full`"
        )
    return decisions
