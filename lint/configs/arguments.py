"""The training arguments of a program: those it builds, and those a parser of it fills."""

from __future__ import annotations

import ast
import os
from typing import TYPE_CHECKING

from ..facts.objects.classes import ancestors, declared_fields
from ..facts.objects.settings_files import file_named
from ..facts.values import Class, Dict, Ref, options, same
from ..model.events import TrainerArgs, TrainerBuild
from ..model.events.extract import args_of, events_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Call, Value
    from ..facts.walk import Program
    from .document import Document

#: The arguments that findings are about: what makes the others known stands where the first of them does.
ANCHORS = (
    "activation_checkpointing",
    "gradient_checkpointing",
    "activation_checkpointing_kwargs",
    "gradient_checkpointing_kwargs",
    "fsdp_config",
    "deepspeed",
)
#: Methods that fill an object of a dataclass.
_FILLING = frozenset(("__init__", "__post_init__", "__new__", "__setattr__", "__getattribute__"))
#: Methods that change a dict.
_CHANGES = frozenset(("pop", "popitem", "clear", "update", "setdefault"))


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


def give_content(program: Program, argument: str, document: Document) -> None:
    """Give what ``document`` holds to the training arguments whose ``argument`` names the file or is read from it."""
    name = os.path.basename(document.filename)
    changed = [write.obj for write in program.writes if write.is_item]
    changed += [call.receiver for call in program.calls if call.method in _CHANGES]
    for call in training_arguments(program):
        given = call.kwargs.get(argument)
        named = None if given is None or any(same(given, value) for value in changed) else file_named(given)
        if given is not None and named is not None and os.path.basename(named) == name:
            call.kwargs[argument] = Dict(document.root.items, document.root.open, given.node)


def parsed_arguments(program: Program) -> Iterator[tuple[Call, str]]:
    """The training arguments that a parser fills, each with the method of the parser."""
    for call in training_arguments(program):
        func = call.node.func
        if call.open_kwargs and isinstance(func, ast.Attribute) and func.attr.startswith("parse_"):
            yield call, func.attr


def declared_defaults(kind: Value) -> dict[str, Value] | None:
    """The defaults that a project's own class of training arguments gives its fields; empty for a library's class.

    None where its objects may hold something else than what they are given: it has methods of its own that fill them.
    """
    if isinstance(kind, Ref):
        return {}
    if not isinstance(kind, Class):
        return None
    owners = (*reversed([*ancestors(kind)]), kind)
    bases = [base for owner in owners for base in owner.bases]
    if not all(isinstance(base, Class | Ref) for base in bases) or any(
        _FILLING & owner.body.keys() for owner in owners
    ):
        return None
    return {name: owner.body[name] for owner in owners for name in declared_fields(owner) if name in owner.body}


def take_over(program: Program, call: Call, made: Call, is_all: bool) -> None:
    """Give a call that a parser makes the arguments that settings stand for.

    Args:
        program: The program of both calls.
        call: The call that a parser makes; from here on it stands where the settings do.
        made: The call that stands for the settings.
        is_all: Whether nothing else gives ``call`` arguments.
    """
    made.node.func = call.node.func
    call.kwargs = {**call.kwargs, **made.kwargs}
    call.node = made.node
    call.open_kwargs = not is_all
    if not any(other is call for other in program.calls):
        program.calls.append(call)
