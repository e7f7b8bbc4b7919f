"""The variables of a loop that count its iterations."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Loop


def counters(loop: Loop) -> dict[str, bool]:
    """The names that `enumerate` or `range` binds, by whether they are certainly 0 in the first iteration."""
    return dict(_counters(loop))


def _counters(loop: Loop) -> Iterator[tuple[str, bool]]:
    if not isinstance(loop, ast.For | ast.AsyncFor | ast.comprehension):
        return
    match loop.target, loop.iter:
        case ast.Tuple(elts=[ast.Name(id=name), *_]), ast.Call(func=ast.Name("enumerate")) as call:
            yield name, len(call.args) == 1 and not call.keywords
        case ast.Name(id=name), ast.Call(func=ast.Name("range")) as call:
            yield name, len(call.args) == 1
