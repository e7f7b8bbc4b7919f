"""The kinds of configuration, one a file. A new file in this folder is a new kind: there is no list to add it to.

A kind defines ``LABEL`` (what people call it), ``matches(root)`` (whether a mapping is one, by its keys) and
``add(config, program)``, which adds the calls that it stands for when nothing else is known. A kind that means
something to a script defines ``join(config, program)`` too, which changes the calls of the script.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...facts.values import Dict
    from ...facts.walk import Program
    from ..document import Document


class Kind(NamedTuple):
    """A kind of configuration."""

    label: str
    matches: Callable[[Dict], bool]
    #: Adds the calls that the file alone stands for.
    add: Callable[[Config, Program], None]
    #: Makes a script's calls what they are under the file; True when that is all that the file says.
    join: Callable[[Config, Program], bool]


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
    return Kind(module.LABEL, module.matches, module.add, getattr(module, "join", _join_nothing))


def _join_nothing(config: Config, program: Program) -> bool:
    return False


def recognise(document: Document) -> Config | None:
    """The kind that ``document`` is of; None when it is no configuration of training."""
    found = [kind for kind in load_kinds() if kind.matches(document.root)]
    # A file that could be two things is neither for certain.
    return Config(document, found[0]) if len(found) == 1 else None
