"""The kinds of configuration, one a file. A new file in this folder is a new kind: there is no list to add it to.

A kind defines ``LABEL`` (what people call it) and ``matches(root)`` (whether a mapping is one, by its keys), and what
it means, in the order in which that is asked for:

- ``fill(config, program)`` gives it to what a parser of the script returns; true when one of them reads it;
- ``add(config, program)`` adds the calls that it stands for, unless a parser took it;
- ``apply(config, program)`` changes the calls that are there by then, as a launcher does.

The kind of a program that is started by its name defines ``arguments_begin(words)`` too: the number of the first
argument in a command that starts it (`swift sft --model ...`), None for another command.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...facts.values import Dict
    from ...facts.walk import Program
    from ..document import Document


#: The kinds of files that arguments of a Trainer name.
OF_A_TRAINER = ("DeepSpeed", "FSDP")


class Kind(NamedTuple):
    """A kind of configuration."""

    label: str
    matches: Callable[[Dict], bool]
    fill: Callable[[Config, Program], bool]
    add: Callable[[Config, Program], None]
    apply: Callable[[Config, Program], None]
    arguments_begin: Callable[[Sequence[str]], int | None]


class Config(NamedTuple):
    """A configuration file that was read."""

    document: Document
    kind: Kind


@cache
def load_kinds() -> tuple[Kind, ...]:
    """All kinds."""
    names = sorted(name[:-3] for name in os.listdir(__path__[0]) if name.endswith(".py") and name[0] != "_")
    return tuple(_kind(name) for name in names)


def _kind(name: str) -> Kind:
    module = import_module(f".{name}", __name__)
    return Kind(
        module.LABEL,
        module.matches,
        getattr(module, "fill", _takes_nothing),
        getattr(module, "add", _nothing),
        getattr(module, "apply", _nothing),
        getattr(module, "arguments_begin", _starts_nothing),
    )


def _takes_nothing(config: Config, program: Program) -> bool:
    return False


def _nothing(config: Config, program: Program) -> None:
    return None


def _starts_nothing(words: Sequence[str]) -> int | None:
    return None


def recognise(document: Document) -> Config | None:
    """The kind that ``document`` is of; None when it is no configuration of training."""
    found = [kind for kind in load_kinds() if kind.matches(document.root)]
    # A file that could be two things is neither for certain.
    return Config(document, found[0]) if len(found) == 1 else None
