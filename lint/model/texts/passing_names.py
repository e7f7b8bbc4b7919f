"""Which names of parameters pass a test in a loop over `named_parameters()`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeAlias

from .text_values import OpenValueError, TextValues
from .written_texts import bound_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...facts.values import Guard

    #: Gives the expression that a variable stands for.
    Meant: TypeAlias = Callable[[ast.expr], ast.expr | None]


def is_named_in(loop: ast.For) -> bool:
    """Whether ``loop`` goes through the names of parameters as the object has them."""
    match loop:
        case ast.For(
            target=ast.Tuple(elts=[ast.Name(), ast.Name()]),
            iter=ast.Call(func=ast.Attribute(attr="named_parameters"), args=[], keywords=[]),
        ):
            return True
    return False


def name_passes(guard: Guard, loop: ast.For, name: str, meant: Meant | None = None) -> bool | None:
    """Whether a parameter called ``name`` comes to where ``guard`` holds; None when more than its name decides.

    ``meant`` gives what variables stand for that are bound outside of the loop.
    """
    match loop.target:
        case ast.Tuple(elts=[ast.Name(id=variable), _]):
            answer = _answer(guard.test, variable, name)
            if answer is None and isinstance(guard.test, ast.expr):
                answer = _computed(guard.test, TextValues({variable: name}, _in_loop(loop, meant)))
            return None if answer is None else answer is guard.taken
    return None


def _in_loop(loop: ast.For, meant: Meant | None) -> Meant:
    """What variables stand for that ``loop`` binds; what ``meant`` says for others."""

    def found(node: ast.expr) -> ast.expr | None:
        inner = bound_once((loop,), node.id) if isinstance(node, ast.Name) else None
        return inner if inner is not None or meant is None else meant(node)

    return found


def _computed(test: ast.expr, values: TextValues) -> bool | None:
    """What ``test`` comes out as: `int(name.split(".")[3]) < 8`."""
    try:
        return bool(values.of(test))
    except OpenValueError:
        return None


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


def _answer(test: ast.AST, variable: str, name: str) -> bool | None:
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _answer(operand, variable, name)
            return None if inner is None else not inner
        case ast.BoolOp(op=op, values=values):
            answers = {_answer(value, variable, name) for value in values}
            stops = isinstance(op, ast.Or)
            return stops if stops in answers else (None if None in answers else not stops)
        case ast.Compare(left=ast.Constant(value=str(text)), ops=[op], comparators=[ast.Name(id=asked)]):
            if asked == variable and isinstance(op, ast.In | ast.NotIn):
                return (text in name) is isinstance(op, ast.In)
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=asked), attr="startswith" | "endswith" as method),
            args=[ast.Constant(value=str(text))],
        ):
            if asked == variable:
                return name.startswith(text) if method == "startswith" else name.endswith(text)
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=asked), attr="startswith" | "endswith" as method),
            args=[ast.Tuple(elts=[*parts])],
        ):
            texts = _texts(parts)
            if asked == variable and texts:
                return name.startswith(texts) if method == "startswith" else name.endswith(texts)
        case ast.Call(
            func=ast.Name(id="any" | "all" as quantifier),
            args=[
                ast.GeneratorExp(
                    elt=inner,
                    generators=[
                        ast.comprehension(
                            target=ast.Name(id=part),
                            iter=ast.Tuple(elts=[*parts]) | ast.List(elts=[*parts]),
                            ifs=[],
                        )
                    ],
                )
            ],
        ) if (texts := _texts(parts)) and part != variable:
            found = [_answer_for(inner, variable, name, part, text) for text in texts]
            return None if None in found else (any if quantifier == "any" else all)(map(bool, found))
    return None


def _texts(parts: list[ast.expr]) -> tuple[str, ...]:
    """The texts that a tuple or a list consists of; none where something else is in it."""
    found = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return tuple(found) if len(found) == len(parts) else ()


def _answer_for(test: ast.AST, variable: str, name: str, part: str, text: str) -> bool | None:
    """What a test of a comprehension is where its variable ``part`` is ``text``."""
    match test:
        case ast.Compare(left=ast.Name(id=left), ops=[ast.In() | ast.NotIn() as op], comparators=[ast.Name(id=asked)]):
            if left == part and asked == variable:
                return (text in name) is isinstance(op, ast.In)
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=asked), attr="startswith" | "endswith" as method),
            args=[ast.Name(id=given)],
        ):
            if asked == variable and given == part:
                return name.startswith(text) if method == "startswith" else name.endswith(text)
    return None
