"""Modules of the project that the checked file imports: read one hop deep, so that their names mean something."""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING, NamedTuple

from .origin import mark
from .places import Place
from .scopes import Scope
from .values import Module
from .walk import Walk

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from .values import Value

#: Characters of one module, and of all that one file imports: what a run is made of is small, a library is not.
MAX_TEXT, MAX_TOTAL = 60_000, 150_000
#: Shorter modules are always read: constants and options have no words to know them by.
ALWAYS = 4_000
#: Without one of these a longer module decides nothing about checkpointing.
_RELEVANT = ("checkpoint", "torch.nn", "nn.Module", "TrainingArguments", "use_reentrant")
#: Libraries whose names are known by themselves, also to files that stand beside their sources.
_KNOWN = frozenset(
    ("torch", "transformers", "peft", "trl", "accelerate", "diffusers", "deepspeed", "timm", "lightning", "numpy")
) | frozenset(sys.stdlib_module_names)


class LocalModule(NamedTuple):
    """A module of the project."""

    filename: str
    text: str


if TYPE_CHECKING:
    #: Gives the module that a name (with leading dots for a relative import) means in the checked file; None for
    #: everything that is not part of the project.
    FindModule: TypeAlias = Callable[[str], LocalModule | None]


def import_module(walk: Walk, name: str, node: ast.AST) -> Value | None:
    """The local module called ``name``, walked from its first line; None when it is not local or cannot be read."""
    program = walk.program
    if program.find_module is None or program.importing or name.partition(".")[0] in _KNOWN:
        return None
    if name not in program.modules:
        program.modules[name] = _read(walk, name, node)
    return program.modules[name]


def _read(walk: Walk, name: str, node: ast.AST) -> Module | None:
    from .statements import execute

    program = walk.program
    assert program.find_module is not None
    found = program.find_module(name)
    if found is None or not _is_worth_reading(found.text, sum(map(len, program.texts.values()))):
        return None
    try:
        tree = ast.parse(found.text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    mark(tree, found.filename)
    program.texts[found.filename] = found.text
    scope = Scope(tree, None)
    program.importing = True
    try:
        execute(Walk(program, scope, Place(), walk.engine), tree.body)
    finally:
        program.importing = False
    return Module(name, scope, node)


def _is_worth_reading(text: str, read: int) -> bool:
    small = len(text) <= MAX_TEXT and read + len(text) <= MAX_TOTAL
    return small and (len(text) <= ALWAYS or any(word in text for word in _RELEVANT))
