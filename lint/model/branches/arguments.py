"""What it changes when a call leaves an argument out."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.exclusion import conjuncts
from ...facts.parameters import defaults
from ...facts.values import Choice, Const, Function, Param, Value, conditional_options
from ..calls.call_targets import call_targets
from ..calls.own_forward import reading
from ..conditions.guards import excludes_mode
from .branches import is_read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Guard, Place
    from ..calls.call_targets import CallTarget


class Argument(NamedTuple):
    """One argument as it is written, with where it goes: to a position or under a name.

    What `**kwargs` gives is ``spread``: its node is its key, and the expression behind it stands elsewhere.
    """

    node: ast.expr
    value: Value
    position: int | None
    name: str | None
    spread: bool = False

    def parameter(self, part: CallTarget) -> str | None:
        """The parameter that it fills; None when there is no such positional one."""
        names = part.parameters()
        if self.position is None:
            return self.name
        return names[self.position] if self.position < len(names) else None


def effect_of_lack(argument: Argument, block: Value, given: list[Argument], place: Place) -> bool | None:
    """Whether leaving an argument out changes what a block computes.

    Args:
        argument: The argument.
        block: What is called without it.
        given: What that call gives.
        place: Where it stands.

    Returns:
        None when the argument may be what the block takes without it.
    """
    bodies = list(call_targets(block))
    if bodies and all(_is_ignored(argument, part, given) for part in bodies):
        return False
    default = _defaults(argument, bodies)
    answers = {_is_something(value, default) for value in _possible(argument.value, place)}
    if not answers or answers == {False} or _is_decided(argument.node, place, default):
        return False
    return None if answers != {True} else True


def _possible(value: Value, place: Place) -> Iterator[Value]:
    """What ``value`` may be in training, where the call at ``place`` runs."""
    for option, conditions in conditional_options(value):
        if not any(excludes_mode(guard, training=True) or _excluded(guard, place) for guard in conditions):
            yield option


def _excluded(guard: Guard, place: Place) -> bool:
    return any(guard.contradicts(other) for other in place.guards)


def _is_something(value: Value, default: object) -> bool | None:
    """Whether ``value`` is anything else than what the block takes without it; None when its caller decides."""
    match value:
        case Const(constant):
            return constant is not default and constant != default
        case Param() if isinstance(value.default, Const):
            return None
        case Choice():
            return None
    return True


def _is_decided(node: ast.expr, place: Place, default: object) -> bool:
    """Whether the conditions around ``place`` say that the expression is the default."""
    known = {said: holds for guard in place.guards for said, holds in conjuncts(guard.test, guard.taken)}
    answer = known.get(ast.dump(node))
    return answer is not None and bool(default) is answer and isinstance(default, bool | None)


def _is_ignored(argument: Argument, part: CallTarget, given: list[Argument]) -> bool:
    """Whether the block does not read the parameter when it is called with what is ``given``."""
    name = argument.parameter(part)
    if name is None or name not in _names(part.function):
        return False
    return not is_read(name, reading(part.function).node, _bound(part, given))


def _bound(part: CallTarget, given: list[Argument]) -> dict[str, object]:
    """The constants that the parameters of the block hold when they are ``given``, defaults among them."""
    filled = {argument.parameter(part): argument.value for argument in given}
    constants = {name: value.value for name, value in filled.items() if name and isinstance(value, Const)}
    left = {name: default for name, default in _constant_defaults(part.function).items() if name not in filled}
    return left | constants


def _defaults(argument: Argument, bodies: list[CallTarget]) -> object:
    """What the block takes when the argument is left out; None when that is not known."""
    found = {_constant_defaults(part.function).get(argument.parameter(part) or "") for part in bodies}
    return found.pop() if len(found) == 1 else None


def is_none_by_default(name: str | None, part: CallTarget) -> bool:
    """Whether the block takes None for its parameter ``name`` when that is left out."""
    found = _constant_defaults(part.function)
    return name in found and found[name] is None


def _constant_defaults(function: Function) -> dict[str, object]:
    found = defaults(function.node).items()
    return {name: default.value for name, default in found if isinstance(default, ast.Constant)}


def _names(function: Function) -> set[str]:
    arguments = function.node.args
    return {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
