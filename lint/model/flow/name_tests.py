"""Which texts a program compares the names of parameters and modules with."""

from __future__ import annotations

import ast
from itertools import islice
from typing import TYPE_CHECKING

from .statements import holder_of

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator

    from ..events import NamedParts
    from ..run import Run

#: What a checkpoint wrapper puts into the names below it.
_WRAPPED = "_checkpoint_wrapped_module"
#: Methods of a name, and functions of `re`, that test it.
_TESTS = frozenset(("startswith", "endswith", "find"))
_MATCHES = frozenset(("match", "fullmatch", "search"))


def names_tested(run: Run, names: NamedParts, pattern: re.Pattern[str]) -> Iterator[ast.expr]:
    """The texts that a loop compares the names of parameters or modules with, names as the model has them.

    Args:
        run: The run that ``names`` are of.
        names: Where the program asks for the names.
        pattern: What must be found in a text.

    Returns:
        The texts as they are written; of a tuple or a list the first. A loop that changes the name, or that knows of
        checkpoint wrappers, has none.
    """
    loop = holder_of(run, names.call)
    if isinstance(loop, ast.For | ast.comprehension) and loop.iter is names.node:
        name = _untouched_name(loop)
        numbers = _numbers((*names.place.loops, *_inside(loop))) if name else frozenset()
        for test in _tests(loop) if name else ():
            for texts in _texts(test, name):
                yield from islice((text for text in texts if _is_found(pattern, text, numbers)), 1)


def _untouched_name(loop: ast.For | ast.comprehension) -> str:
    """The variable that holds a name as the model has it; empty when the loop changes it or knows of the wrappers."""
    match loop.target:
        case ast.Name(id=name) | ast.Tuple(elts=[ast.Name(id=name), _]):
            for node in _inside(loop):
                match node:
                    case ast.Name(id=bound, ctx=ast.Store()) | ast.arg(arg=bound) if bound == name:
                        return ""
                    case ast.Constant(value=str(text)) if _WRAPPED in text:
                        return ""
            return name
    return ""


def _numbers(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """The variables that are numbers in each iteration of the loops among ``nodes``: `i` of `range` and `enumerate`."""
    found = set()
    for node in nodes:
        match node:
            case (
                ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range")))
                | ast.comprehension(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range")))
                | ast.For(target=ast.Tuple(elts=[ast.Name(id=name), _]), iter=ast.Call(func=ast.Name(id="enumerate")))
            ):
                found.add(name)
    return frozenset(found)


def _inside(loop: ast.For | ast.comprehension) -> Iterator[ast.AST]:
    for part in loop.body if isinstance(loop, ast.For) else loop.ifs:
        yield from ast.walk(part)


def _tests(loop: ast.For | ast.comprehension) -> list[ast.expr]:
    if isinstance(loop, ast.comprehension):
        return loop.ifs
    return [node.test for node in _inside(loop) if isinstance(node, ast.If)]


def _texts(test: ast.expr, name: str) -> Iterator[list[ast.expr]]:
    """The texts that the variable ``name`` itself is tested with, those of one tuple or list together."""
    each = {
        node.target.id: node.iter
        for node in ast.walk(test)
        if isinstance(node, ast.comprehension) and isinstance(node.target, ast.Name)
    }
    for node in ast.walk(test):
        text = _tested_with(node, name)
        match each.get(text.id, text) if isinstance(text, ast.Name) else text:
            case ast.Constant() | ast.JoinedStr() as one:
                yield [one]
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                yield [item for item in items if isinstance(item, ast.Constant | ast.JoinedStr)]


def _tested_with(node: ast.AST, name: str) -> ast.expr | None:
    """What ``node`` compares the variable ``name`` with or looks for in it; None when it does something else."""
    match node:
        case ast.Compare(
            left=text, ops=[ast.In() | ast.NotIn() | ast.Eq() | ast.NotEq()], comparators=[ast.Name(id=own)]
        ):
            return text if own == name else None
        case ast.Compare(left=ast.Name(id=own), ops=[ast.Eq() | ast.NotEq()], comparators=[text]):
            return text if own == name else None
        case ast.Compare(left=ast.Name(id=own), ops=[ast.In() | ast.NotIn()], comparators=[text]):
            return text if own == name and not isinstance(text, ast.Constant) else None
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=method), args=[text, ast.Name(id=own), *_]):
            return text if own == name and method in _MATCHES else None
        case ast.Call(func=ast.Attribute(value=ast.Name(id=own), attr=method), args=[text, *_]):
            return text if own == name and method in _TESTS else None
    return None


def _is_found(pattern: re.Pattern[str], text: ast.expr, numbers: frozenset[str]) -> bool:
    name = _written(text, numbers)
    return name is not None and pattern.search(name) is not None


def _written(text: ast.expr, numbers: frozenset[str]) -> str | None:
    """What ``text`` is, with 0 for each of ``numbers`` that an f-string puts in; None when that is not known."""
    match text:
        case ast.Constant(value=str(plain)):
            return plain
        case ast.FormattedValue(value=ast.Name(id=name), conversion=-1, format_spec=None) if name in numbers:
            return "0"
        case ast.JoinedStr(values=values):
            parts = [_written(value, numbers) for value in values]
            known = [part for part in parts if part is not None]
            return "".join(known) if len(known) == len(parts) else None
    return None
