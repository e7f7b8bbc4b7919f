"""The training arguments of a program: those it builds, and those a parser of it fills."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..facts.values import options
from ..model.events import TrainerArgs, TrainerBuild
from ..model.events.extract import events_of
from ..model.libraries.trainer import args_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.calls import Call
    from ..facts.values import Value
    from ..facts.walk import Program


def training_arguments(program: Program) -> list[Call]:
    """The calls that make training arguments, also those a parser makes for a Trainer."""
    found: dict[int, Call] = {}
    for call in program.calls:
        for event in events_of(call):
            if isinstance(event, TrainerArgs):
                found[id(call)] = call
            elif isinstance(event, TrainerBuild):
                for args in filter(None, map(args_of, options(event.args))):
                    found[id(args.call)] = args.call
    return list(found.values())


def give_where_missing(program: Program, arguments: dict[str, Value]) -> None:
    """Set ``arguments`` where the script says none of them: that is what a launcher's environment does."""
    for call in training_arguments(program):
        if not call.kwargs.keys() & arguments.keys():
            call.kwargs |= arguments


def parsed_arguments(program: Program) -> Iterator[tuple[Call, str]]:
    """The training arguments that a parser fills, each with the method of the parser."""
    for call in training_arguments(program):
        func = call.node.func
        if call.open_kwargs and isinstance(func, ast.Attribute) and func.attr.startswith("parse_"):
            yield call, func.attr


def take_over(program: Program, call: Call, made: Call, is_all: bool) -> None:
    """Let ``call``, which a parser makes, have the arguments of ``made``, which settings stand for.

    From here on it stands where the settings do; with ``is_all`` nothing else gives it arguments.
    """
    made.node.func = call.node.func
    call.kwargs = {**call.kwargs, **made.kwargs}
    call.node = made.node
    call.open_kwargs = not is_all
    if not any(other is call for other in program.calls):
        program.calls.append(call)
