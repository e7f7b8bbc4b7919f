"""`self.save_hyperparameters()` of Lightning: what the constructor was given is kept as `self.hparams`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..objects.containers import text_of
from ..values import Absent, Call, Const, Dict, Instance, Seq, Value, options
from .bindings import write

if TYPE_CHECKING:
    from ..walk import Walk

KEEP = "save_hyperparameters"


def keep_arguments(walk: Walk, module: Instance, call: Call) -> Value | None:
    """Let ``module`` have what the constructor around ``call`` was given, all of it or what ``call`` names.

    What a class derived from it was given is there too.
    """
    kept = _kept(walk, call)
    if kept is not None:
        write(walk, module, "hparams", Dict(kept, True, call.node, walk.place), call.node)
    return None


def _kept(walk: Walk, call: Call) -> dict[str, Value] | None:
    match call.args:
        case [Dict(items)]:
            return dict(items)
    asked, ignored = _names(call.args), _names([call.keyword("ignore")])
    function = walk.scope.node
    if call.open_args or asked is None or ignored is None or not isinstance(function, ast.FunctionDef):
        return None
    arguments = function.args
    given = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)][1:]
    chosen = [name for name in given if (not asked or name in asked) and name not in ignored]
    return {name: walk.scope.names[name] for name in chosen if name in walk.scope.names}


def _names(said: list[Value]) -> list[str] | None:
    """The names that an argument lists, one or several; None for what is no name."""
    found: list[str | None] = []
    for value in said:
        match value:
            case Seq(_, items, False):
                found += [text_of(item) for item in items]
            case Absent() | Const(None):
                pass
            case _:
                found += [text_of(option) for option in options(value)]
    return None if None in found else [name for name in found if name is not None]
