"""What a value may be where something happens: the conditions there rule alternatives out, and tell what is true."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.exclusion import conjuncts
from ...facts.values import conditional_options, truth

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Guard, Place, Value


def options_at(value: Value, place: Place) -> Iterator[Value]:
    """The alternatives of ``value`` that are bound under no condition that the conditions of ``place`` exclude."""
    return (option for option, _ in ways_at(value, place))


def ways_at(value: Value, place: Place) -> Iterator[tuple[Value, tuple[Guard, ...]]]:
    """The same alternatives, each with the conditions that it is bound under."""
    for option, conditions in conditional_options(value):
        if not any(mine.contradicts(other) for mine in conditions for other in place.guards):
            yield option, conditions


def truth_at(value: Value, place: Place) -> bool | None:
    """``bool(value)`` where the source, or a condition of ``place`` that asks for the same, decides it."""
    known = truth(value)
    if known is not None:
        return known
    asked = next((guard for guard in place.guards if guard.value is value), None)
    if asked is not None or not isinstance(value.node, ast.expr):
        return None if asked is None else asked.taken
    said = {subject: holds for guard in place.guards for subject, holds in conjuncts(guard.test, guard.taken)}
    return said.get(ast.dump(value.node))
