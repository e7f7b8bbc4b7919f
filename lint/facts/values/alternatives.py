"""One of several values, and the conditions that each is bound under."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .guards import Guard, either_holds, said
from .plain import UNKNOWN, Computed, Value, same

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable

#: More alternatives than this tell a rule nothing, so they become ``Unknown``.
MAX_OPTIONS = 4


class Choice(Value):
    """One of ``options``: different branches bound the name, each under its ``conditions``."""

    __slots__ = ("conditions", "options")
    __match_args__ = ("options",)

    def __init__(
        self,
        options: tuple[Value, ...],
        node: ast.AST | None = None,
        conditions: tuple[tuple[Guard, ...], ...] | None = None,
    ) -> None:
        super().__init__(node)
        self.options = options
        self.conditions = conditions or ((),) * len(options)

    def is_same(self, other: Value) -> bool:
        """Never: it is not decided which of them it is."""
        return False


def options(value: Value) -> tuple[Value, ...]:
    """The alternatives ``value`` stands for; itself when there is only one."""
    return value.options if isinstance(value, Choice) else (value,)


def conditional_options(value: Value) -> tuple[tuple[Value, tuple[Guard, ...]], ...]:
    """The alternatives ``value`` stands for, each with the conditions it is bound under."""
    return tuple(zip(value.options, value.conditions, strict=True)) if isinstance(value, Choice) else ((value, ()),)


def join(*values: Value) -> Value:
    """The value that is one of ``values``. Commutative, associative and idempotent up to the order of options."""
    return join_under(*((value, ()) for value in values))


def join_under(*values: tuple[Value, tuple[Guard, ...]]) -> Value:
    """The value that is one of ``values``, each bound under the conditions beside it."""
    if len(values) == 1 and type(values[0][0]) is not Choice:
        return values[0][0]
    found: list[Value] = []
    conditions: list[tuple[Guard, ...]] = []
    for value, outer in values:
        for option, inner in conditional_options(value):
            under = (*outer, *inner)
            for index, other in enumerate(found):
                if same(option, other):
                    found[index] = _either_unknown(other, option)
                    conditions[index] = either(conditions[index], under)
                    break
            else:
                found.append(option)
                conditions.append(under)
    if len(found) == 1:
        return found[0]
    if len(found) > MAX_OPTIONS:
        return UNKNOWN
    return Choice(tuple(found), found[0].node if found else None, tuple(conditions))


def one_at(at: ast.AST, values: Iterable[tuple[Value, tuple[Guard, ...]]], node: ast.AST | None = None) -> Choice:
    """The one of ``values`` that is taken at ``at``: each under its conditions, and that it is this one."""
    taken = [(value, (*under, Guard(at, value, True))) for value, under in values]
    return Choice(tuple(value for value, _ in taken), node, tuple(under for _, under in taken))


def _either_unknown(left: Value, right: Value) -> Value:
    """One value for two that are the same; what is unknown but for its operands may be computed from those of both."""
    if left is right or not (isinstance(left, Computed) or isinstance(right, Computed)):
        return left
    if isinstance(left, Computed) and right in left.operands:
        return left
    return Computed((left, right), left.node)


def either(left: tuple[Guard, ...], right: tuple[Guard, ...]) -> tuple[Guard, ...]:
    """What surely holds when ``left`` or ``right`` does."""
    common = tuple(guard for guard in left if guard in right)
    mine, its = (tuple(guard for guard in side if guard not in common and not guard.asserted) for side in (left, right))
    # `a or (not a and b)` is `a or b`.
    mine, its = _without_opposite(mine, its), _without_opposite(its, mine)
    if not mine or not its:
        return common
    return (*common, Guard(either_holds(said(mine), said(its)), UNKNOWN, True))


def _without_opposite(guards: tuple[Guard, ...], other: tuple[Guard, ...]) -> tuple[Guard, ...]:
    if len(other) != 1:
        return guards
    test, taken = other[0].plain
    return tuple(guard for guard in guards if guard.plain != (test, not taken))
