"""New parameters for a function or lambda, laid out like those it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .whitespace import insert_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    Space = cst.BaseParenthesizableWhitespace

_NONE = cst.SimpleWhitespace("")


def with_defaults(params: cst.Parameters, names: tuple[str, ...], opening: Space = _NONE) -> cst.Parameters:
    """``params`` and a ``name=name`` for each of ``names``; ``opening`` is what follows the opening bracket."""
    added = [cst.Param(cst.Name(name), default=cst.Name(name), equal=cst.AssignEqual(_NONE, _NONE)) for name in names]
    if params.star_arg is not cst.MaybeSentinel.DEFAULT or params.star_kwarg is not None or params.kwonly_params:
        kept = [*params.kwonly_params]
        # The last one of those is followed by nothing but the bracket when there is no `**kwargs`.
        joined = _appended(kept, added, opening) if params.star_kwarg is None else [*kept, *added]
        return params.with_changes(kwonly_params=joined)
    return params.with_changes(params=_appended(params.params, added, opening))


def _appended(present: Sequence[cst.Param], added: list[cst.Param], opening: Space) -> list[cst.Param]:
    """One parameter a line where the last of ``present`` ends its line, else one behind the other."""
    if not present:
        return added
    last = present[-1]
    had_comma = isinstance(last.comma, cst.Comma)
    ending = last.comma.whitespace_after if isinstance(last.comma, cst.Comma) else last.whitespace_after_param
    if not isinstance(ending, cst.ParenthesizedWhitespace) or not isinstance(opening, cst.ParenthesizedWhitespace):
        return [*present, *added]
    comma, rest = insert_line(ending, opening)
    between = cst.Comma(whitespace_after=insert_line(rest, opening)[0].whitespace_after)
    lines = [last.with_changes(comma=comma, whitespace_after_param=_NONE), *added]
    lines[1:-1] = [line.with_changes(comma=between) for line in lines[1:-1]]
    closing = {"comma": cst.Comma(whitespace_after=rest)} if had_comma else {"whitespace_after_param": rest}
    lines[-1] = lines[-1].with_changes(**closing)
    return [*present[:-1], *lines]
