"""Hydra's YAML: a section whose `_target_` is a class of training arguments, which `instantiate` builds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...facts.values import Const, Dict, Unknown
from ..calls import call_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Value
    from ...facts.walk import Program
    from . import Config

LABEL = "Hydra"
_TARGET = "_target_"
_ARGUMENTS = re.compile(r"(?:transformers|trl)\.(?:\w+\.)*(\w*TrainingArguments|\w+Config)\Z")
_CHECKPOINTING = re.compile(r"(?:activation|gradient)_checkpointing(?:_kwargs)?\Z")
#: How deep sections are looked into.
_DEPTH = 4


def matches(root: Dict) -> bool:
    """A section of it becomes training arguments."""
    return any(_sections(root, _DEPTH))


def add(config: Config, program: Program) -> None:
    """The arguments as far as the file says them: other files, the command line and the script may say more."""
    document = config.document
    for name, section in _sections(document.root, _DEPTH):
        given = {key: _resolved(value) for key, value in section.items.items() if not key.startswith("_")}
        keys = {key: key for key in given}
        call = call_of(document, program, name, given, keys=keys, section=section)
        first = next((value.node for key, value in given.items() if _CHECKPOINTING.match(key)), None) or section.node
        if first is not None:
            document.place_like(call.node, first)
        call.open_kwargs = True
        program.calls.append(call)


def _sections(section: Dict, depth: int) -> Iterator[tuple[str, Dict]]:
    """The sections that become training arguments, each with the name of their class."""
    match section.items.get(_TARGET):
        case Const(str(target)) if _ARGUMENTS.match(target):
            library, *_, last = target.split(".")
            yield f"{library}.{last}", section
    for inner in section.items.values() if depth else ():
        if isinstance(inner, Dict):
            yield from _sections(inner, depth - 1)


def _resolved(value: Value) -> Value:
    """``value`` as far as the file says it: `${model.checkpointing}` stands somewhere else."""
    match value:
        case Const(str(text)) if "${" in text:
            return Unknown(value.node)
        case Dict(items, is_open):
            return Dict({key: _resolved(item) for key, item in items.items()}, is_open, value.node)
    return value
