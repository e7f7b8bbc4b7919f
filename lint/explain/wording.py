"""Conditions and switches in words: what decides when the program text alone does not."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ..facts.objects.parsers import Given
from ..facts.origin import setting_line
from ..facts.values import Absent, equals, options, truth
from ..model.libraries.trainer import KWARGS, SWITCHES, default_switch, is_enabled, trainer_kwargs, trainer_reentrant
from ..model.variant import hf_kwargs_reentrant
from .state import State, variant

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..facts.values import Guard, Value
    from ..model.events import TrainerArgs
    from ..model.run import Run

#: What accelerate and torchtune make of a model.
WRAPPED = "every layer is wrapped in torch's checkpoint, non-reentrant"
_LONGEST = 76
_SWITCH = {True: "on", False: "off", None: "undecided"}


def code(node: ast.AST) -> str:
    """The text of ``node`` on one line, shortened."""
    text = setting_line(node) or " ".join(ast.unparse(node).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def condition(guards: Iterable[Guard]) -> str:
    """The conditions ``guards`` in words; empty when there are none."""
    return " and ".join(dict.fromkeys(map(_guard, guards)))


def _guard(guard: Guard) -> str:
    if isinstance(guard.test, ast.ExceptHandler):
        return "an exception was caught"
    if not isinstance(guard.test, ast.expr):
        return f"the case is `{code(guard.test)}`"
    test, taken = guard.plain
    text = f"`{code(test)}`" if taken else f"not `{code(test)}`"
    found = _given(guard.value)
    return text if found is None else f"{text} ({_option(found)})"


def _given(value: Value) -> Given | None:
    return next((option for option in options(value) if isinstance(option, Given)), None)


def _option(given: Given) -> str:
    default = truth(given.default)
    return f"`{given.option}`" if default is None else f"`{given.option}`, {_SWITCH[default]} by default"


class Asked(NamedTuple):
    """What arguments ask the Trainer for."""

    state: State
    #: Whether the user decides it when the script is started.
    is_option: bool = False

    def or_else(self, before: State) -> State:
        """What holds for a model that was in the state ``before``."""
        if self.state.on is not None:
            return self.state if self.state.on else before
        otherwise = f"; if not, {before}" if before.on is not False and not before.said else ""
        return self.state._replace(said=f"{self.state}{otherwise}")


def asked(run: Run, args: TrainerArgs, value: Value) -> Asked:
    """What ``args``, known to the program as ``value``, ask the Trainer for."""
    enabled = is_enabled(run, args, value)
    reentrant = trainer_reentrant(run, args)
    if enabled is not None:
        return Asked(State(enabled, reentrant) if enabled else State(enabled))
    given = _given(args.enabled)
    if given is not None:
        return Asked(_by_default(truth(given.default), reentrant, given.option), True)
    if _is_parsed(args):
        declared = args.declared(*SWITCHES)
        default = default_switch(args) if isinstance(declared, Absent) or equals(declared, None) else truth(declared)
        return Asked(_by_default(default, _declared_variant(run, args), "--gradient_checkpointing"), True)
    if args.call.open_kwargs:
        return Asked(State(None, None, "decided by the arguments behind `**`"))
    condition = _switch_as_written(args)
    if condition is not None:
        return Asked(State(None, reentrant, f"on, {variant(reentrant)} when `{code(condition)}`"))
    return Asked(State(None, reentrant))


def _switch_as_written(args: TrainerArgs) -> ast.expr | None:
    """The expression that decides; a variable with a constant in each branch stands for these."""
    given = (word.value for word in args.node.keywords if word.arg in SWITCHES)
    found = args.enabled.node
    found = next(given, None) if isinstance(found, ast.Constant) else found
    match found:
        case ast.IfExp(test=test, body=ast.Constant(value=True), orelse=ast.Constant(value=False)):
            return test
    return found if isinstance(found, ast.expr) and not isinstance(found, ast.Constant) else None


def _by_default(default: bool | None, reentrant: bool | None, option: str) -> State:
    if default is None:
        return State(None, reentrant, f"decided by `{option}` on the command line")
    what = f"on by default, {variant(reentrant)}" if default else "off by default"
    return State(None, reentrant, f"{what}; `{option}` on the command line decides")


def _declared_variant(run: Run, args: TrainerArgs) -> bool | None:
    """The variant when the command line says nothing about it."""
    return hf_kwargs_reentrant(trainer_kwargs(args.declared(*KWARGS)), run.versions.hf_default_reentrant)


def _is_parsed(args: TrainerArgs) -> bool:
    """Whether a command line filled the object: the call that made it is one of a parser's methods."""
    made = args.node.func
    return args.call.open_kwargs and isinstance(made, ast.Attribute) and made.attr.startswith("parse_")
