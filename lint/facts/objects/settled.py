"""What a value is by the default of a parameter: a condition, where no caller is shown."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..parameters import defaults
from ..values import UNKNOWN, Dict, Guard, Param, Value, conditional_options

if TYPE_CHECKING:
    from collections.abc import Iterator


def settled(value: Value) -> Iterator[tuple[Value, tuple[Guard, ...]]]:
    """The alternatives of ``value``, each with its conditions; a parameter is its default, or what a caller gives."""
    for option, under in conditional_options(value):
        guard = _is_default(option) if isinstance(option, Param) and option.default is not None else None
        if isinstance(option, Param) and option.default is not None and guard is not None:
            yield option.default, (*under, guard)
            yield option, (*under, guard._replace(taken=False))
        else:
            yield option, under


def _is_default(param: Param) -> Guard | None:
    """The condition that no caller gives ``param``, as a user would write it."""
    written = defaults(param.function.node).get(param.name)
    if written is None or param.node is None:
        return None
    same = ast.Eq() if isinstance(param.default, Dict) else ast.Is()
    name = ast.copy_location(ast.Name(param.name, ast.Load()), param.node)
    return Guard(ast.copy_location(ast.Compare(name, [same], [written]), param.node), UNKNOWN, True)
