"""Check functions of `apply_activation_checkpointing`: what they ask of each module."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from ...facts.values import Class, Const, Function, Seq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...facts.values import Value


class ComparedWith(NamedTuple):
    """A check that compares the module itself: `module is Block`."""

    name: str
    value: Value
    node: ast.expr
    #: What else it is compared with: `module in (Block, Head)`.
    others: tuple[Value, ...] = ()


class NamesAsked(NamedTuple):
    """A check that asks for the name of the class: `"Block" in type(module).__name__`."""

    accepts: Callable[[str], bool]
    node: ast.expr


def compared_with(check: Value) -> ComparedWith | None:
    """What ``check`` compares the module itself with; None when it asks something else."""
    match _test(check), check:
        case (
            ast.Compare(left=ast.Name(left), ops=[ast.Is() | ast.Eq()], comparators=[ast.Name(right)]) as test,
            Function() as function,
        ) if left in _parameters(function):
            return ComparedWith(right, function.scope.look_up(right), test)
        case (
            ast.Compare(left=ast.Name(left), ops=[ast.In()], comparators=[held]) as test,
            Function() as function,
        ) if left in _parameters(function):
            found = _held(held, function)
            return ComparedWith(ast.unparse(held), found[0], test, tuple(found[1:])) if found else None
        case ast.Compare(left=asked, ops=[ast.Is() | ast.Eq()], comparators=[ast.Constant(str(text))]) as test, _ if (
            _is_class(asked)
        ):
            return ComparedWith(repr(text), Const(text, test), test)
    return None


def _held(node: ast.expr, function: Function) -> list[Value]:
    """What a display of names, or the name of one, holds."""
    match node:
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return (
                [function.scope.look_up(part.id) for part in parts if isinstance(part, ast.Name)]
                if all(isinstance(part, ast.Name) for part in parts)
                else []
            )
        case ast.Name(id=name):
            value = function.scope.look_up(name)
            return [*value.items] if isinstance(value, Seq) and not value.open else []
    return []


def names_asked(check: Value) -> NamesAsked | None:
    """Which names of classes ``check`` accepts; None when it asks something else."""
    test = _test(check)
    accepts = _name_test(test) if test is not None else None
    return NamesAsked(accepts, test) if test is not None and accepts is not None else None


def _name_test(test: ast.expr) -> Callable[[str], bool] | None:
    """What ``test`` says of the name of a class; None when it depends on anything else."""
    match test:
        case ast.BoolOp(op=op, values=values):
            parts = [_name_test(value) for value in values]
            known = [part for part in parts if part is not None]
            together = all if isinstance(op, ast.And) else any
            return (lambda name: together(part(name) for part in known)) if len(known) == len(parts) else None
        case ast.Call(func=ast.Name("bool"), args=[inner]):
            return _name_test(inner)
        case ast.Compare(left=ast.Call() as inner, ops=[ast.IsNot()], comparators=[ast.Constant(None)]):
            return _pattern_test(inner)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _comparison(left, op, right)
        case ast.Call(func=ast.Attribute(value=asked, attr="startswith" | "endswith" as method), args=[texts]):
            return _with_texts(asked, texts, lambda name, texts: getattr(name, method)(texts))
        case ast.Call():
            return _pattern_test(test)
    return None


def _comparison(left: ast.expr, op: ast.cmpop, right: ast.expr) -> Callable[[str], bool] | None:
    match op:
        case ast.Eq():
            return _with_texts(left, right, _is_one) or _with_texts(right, left, _is_one)
        case ast.In() if isinstance(right, ast.Constant):
            return _with_texts(left, right, lambda name, texts: name in texts[0])
        case ast.In() if isinstance(left, ast.Constant):
            return _with_texts(right, left, lambda name, texts: texts[0] in name)
        case ast.In():
            return _with_texts(left, right, _is_one)
    return None


def _is_one(name: str, texts: tuple[str, ...]) -> bool:
    return name in texts


def _pattern_test(call: ast.Call) -> Callable[[str], bool] | None:
    """`re.search("Block$", type(module).__name__)`."""
    match call:
        case ast.Call(
            func=ast.Attribute(value=ast.Name("re"), attr="match" | "search" | "fullmatch" as method),
            args=[pattern, asked],
            keywords=[],
        ):
            return _with_texts(asked, pattern, lambda name, texts: _matches(method, texts[0], name))
    return None


def _matches(method: str, pattern: str, name: str) -> bool:
    """Whether the function ``method`` of `re` finds ``pattern``; a pattern that is none counts as found."""
    try:
        return getattr(re, method)(pattern, name) is not None
    except re.error:
        return True


def _with_texts(
    asked: ast.expr, texts: ast.expr, test: Callable[[str, tuple[str, ...]], bool]
) -> Callable[[str], bool] | None:
    """``test`` of the name of a class, spelled as ``asked`` spells it, and the literal ``texts``."""
    spell, written = _spelling(asked), tuple(_strings(texts))
    return (lambda name: test(spell(name), written)) if spell is not None and written else None


def _spelling(node: ast.expr) -> Callable[[str], str] | None:
    """How ``node`` spells the name of a class, `type(module).__name__.lower()`; None when it is no such name."""
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr="lower" | "upper" | "casefold" as method), args=[]):
            before = _spelling(inner)
            return (lambda name: getattr(before(name), method)()) if before is not None else None
    return str if _is_class_name(node) else None


def exact_names(check: Value) -> tuple[str, ...]:
    """The names of classes that ``check`` accepts, where it compares with whole names only; empty otherwise."""
    match _test(check):
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            asked, texts = (left, right) if _is_class_name(left) else (right, left)
        case ast.Compare(left=asked, ops=[ast.In()], comparators=[ast.List() | ast.Tuple() | ast.Set() as texts]):
            pass
        case _:
            return ()
    return tuple(_strings(texts)) if _is_class_name(asked) else ()


def classes_compared(check: Function) -> list[Value]:
    """The classes that ``check`` compares the class of a module with: `type(module) is Block`, `in (Block, Head)`."""
    match _test(check):
        case ast.Compare(left=asked, ops=[ast.Is() | ast.Eq()], comparators=[right]) if _is_class(asked):
            kinds = [right]
        case ast.Compare(left=asked, ops=[ast.In()], comparators=[ast.Tuple() | ast.List() | ast.Set() as right]) if (
            _is_class(asked)
        ):
            kinds = right.elts
        case _:
            return []
    found = (check.scope.look_up(kind.id) for kind in kinds if isinstance(kind, ast.Name))
    return [value for value in found if isinstance(value, Class)]


def classes_asked(check: Function) -> list[Value]:
    """The classes that the one `isinstance(module, ...)` of ``check`` names; empty when it is something else."""
    match asks_by_isinstance(check):
        case ast.Call(args=[_, ast.Name(id=name)]):
            value = check.scope.look_up(name)
            return [*value.items] if isinstance(value, Seq) else [value]
        case ast.Call(args=[_, kinds]):
            return _held(kinds, check)
    return []


def asks_by_isinstance(check: Value) -> ast.expr | None:
    """The one `isinstance(module, ...)` that ``check`` consists of; None when it is something else."""
    match _test(check):
        case ast.Call(func=ast.Name("isinstance")) as test:
            return test
    return None


def _test(check: Value) -> ast.expr | None:
    """The expression that a check function consists of."""
    match check:
        case Function(node=ast.Lambda(body=test)):
            return test
        case Function(node=ast.FunctionDef(body=[ast.Return(value=test)])):
            return test
    return None


def _parameters(function: Function) -> list[str]:
    return [argument.arg for argument in function.node.args.args]


def _is_class_name(node: ast.expr) -> bool:
    """`type(module).__name__` or `module.__class__.__name__`."""
    return isinstance(node, ast.Attribute) and node.attr == "__name__" and _is_class(node.value)


def _is_class(node: ast.expr) -> bool:
    """`type(module)` or `module.__class__`."""
    match node:
        case ast.Call(func=ast.Name("type")) | ast.Attribute(attr="__class__"):
            return True
    return False


def _strings(node: ast.expr) -> Iterator[str]:
    """The texts of a display or of one constant; none when something else is among them."""
    parts = node.elts if isinstance(node, ast.List | ast.Tuple | ast.Set) else [node]
    texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    yield from texts if len(texts) == len(parts) else ()
