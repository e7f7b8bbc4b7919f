"""Which names of parameters pass a test in a loop over `named_parameters()`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .text_values import OpenValueError, TextValues
from .written_texts import bound_once

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...facts.values import Guard
    from .given_texts import Meant


def is_named_in(loop: ast.For, method: str = "named_parameters") -> bool:
    """Whether ``loop`` goes through the names of parameters, or of what another ``method`` gives, as the object has."""
    match loop:
        case ast.For(
            target=ast.Tuple(elts=[ast.Name(), ast.Name()]),
            iter=ast.Call(func=ast.Attribute(attr=asked), args=[], keywords=[]),
        ):
            return asked == method
    return False


def name_passes(guard: Guard, loop: ast.For | ast.comprehension, name: str, meant: Meant | None = None) -> bool | None:
    """Whether a parameter called ``name`` comes to where ``guard`` holds; None when more than its name decides.

    Args:
        guard: The condition in the loop.
        loop: A loop over names.
        name: The name.
        meant: What other names in the condition stand for that are bound outside of the loop.
    """
    match guard.test, loop.target:
        case ast.expr() as test, ast.Tuple(elts=[ast.Name(id=variable), _]):
            try:
                return bool(TextValues({variable: name}, _in_loop(loop, meant)).of(test)) is guard.taken
            except OpenValueError:
                return None
    return None


def name_passes_all(
    guards: Sequence[Guard], loop: ast.For | ast.comprehension, name: str, meant: Meant | None = None
) -> bool | None:
    """Whether a parameter called ``name`` comes to where all of ``guards`` hold: `elif "head" in name` has two."""
    answers = {name_passes(guard, loop, name, meant) for guard in guards}
    return False if False in answers else (None if None in answers else True)


def _in_loop(loop: ast.For | ast.comprehension, meant: Meant | None) -> Meant:
    """What variables stand for that ``loop`` binds; what ``meant`` says for others."""

    def found(node: ast.expr) -> ast.expr | None:
        inner = bound_once((loop,), node.id) if isinstance(node, ast.Name) else None
        return inner if inner is not None or meant is None else meant(node)

    return found


def prefix_asked(guard: Guard, loop: ast.For) -> str | None:
    """What the names must begin with that come to where ``guard`` holds; None for another test."""
    match guard.test, loop.target:
        case (
            ast.Call(
                func=ast.Attribute(value=ast.Name(id=asked), attr="startswith"), args=[ast.Constant(value=str(text))]
            ),
            ast.Tuple(elts=[ast.Name(id=variable), _]),
        ):
            return text if asked == variable and guard.taken and text and is_named_in(loop) else None
    return None
