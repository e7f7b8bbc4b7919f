"""Expressions and loops that add up, or put together, the elements of a list."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.identifiers import names_in
from ...facts.nodes import all_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Methods of a tensor whose results have its gradient.
_COMPUTES = frozenset(
    (
        *("mean", "sum", "pow", "square", "abs", "norm", "log", "exp", "float", "clone"),
        *("flatten", "view", "reshape", "squeeze", "unsqueeze"),
    )
)
#: Where functions are that compute with a gradient, and what those of a program are called.
_TORCH = frozenset(("F", "torch", "nn.functional", "torch.nn.functional"))
_LOSSES = ("loss", "criterion", "entropy", "penalty", "regular", "divergence")
_TOGETHER = frozenset(("stack", "cat", "concat", "hstack", "fsum"))


def adds_up(node: ast.AST, name: str) -> bool:
    """Whether ``node`` adds up the elements of the list ``name``: `losses`, `*.losses` of any object, `*.drain()`."""
    match node:
        case ast.Call(func=ast.Name(id="sum"), args=[held, *_]):
            return is_list_of_elements(held, name)
        case ast.Call(func=ast.Attribute(attr=method), args=[held, *_]) if method in _TOGETHER:
            return is_list_of_elements(held, name)
        case ast.Call(func=ast.Name(id="reduce") | ast.Attribute(attr="reduce"), args=[step, held, *_]):
            return _is_sum(step) and is_list_of_elements(held, name)
        case ast.For(body=body):
            elements = [element for element, held in passed_by(node) if is_list_of_elements(held, name)]
            parts = [part for statement in body for part in all_nodes(statement)] if elements else []
            return any(_adds(part, element) for element in elements for part in parts)
        case ast.AugAssign(op=ast.Add(), value=value):
            return _is_entry(value, name)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _is_entry(left, name) or _is_entry(right, name)
    return False


def is_list_of_elements(held: ast.expr, name: str) -> bool:
    """Whether ``held`` has the elements of the list, all or some, as they are or each made another value."""
    match held:
        case ast.Subscript(value=inner, slice=ast.Slice()):
            return is_list_of_elements(inner, name)
        case ast.Call(func=ast.Name(id="list" | "tuple"), args=[inner]):
            return is_list_of_elements(inner, name)
        case ast.Call(func=ast.Name(id="map"), args=[ast.Name(id=function), inner]) if _is_loss(function):
            return is_list_of_elements(inner, name)
        case ast.Call(func=ast.Name(id="map"), args=[ast.Lambda(args=ast.arguments(args=[given]), body=term), inner]):
            return is_list_of_elements(inner, name) and _keeps(term, given.arg)
        case ast.ListComp(elt=term, generators=[*_, last]) | ast.GeneratorExp(elt=term, generators=[*_, last]):
            return _is_entry(term, name) or any(
                is_list_of_elements(passed, name) and _keeps(term, element) for element, passed in passed_by(last)
            )
    return _is_list(held, name)


def passed_by(generator: ast.comprehension | ast.For) -> Iterator[tuple[str, ast.expr]]:
    """The variables of a comprehension or a loop, each with what it takes its elements from."""
    match generator.target, generator.iter:
        case ast.Tuple(elts=[_, ast.Name(id=element)]), ast.Call(func=ast.Attribute(attr="items"), args=[]) as passed:
            yield element, passed
        case ast.Name(id=element), passed:
            yield element, passed
        case ast.Tuple(elts=targets), ast.Call(func=ast.Name("zip"), args=lists) if len(targets) == len(lists):
            yield from ((it.id, passed) for it, passed in zip(targets, lists, strict=True) if isinstance(it, ast.Name))
        case ast.Tuple(elts=[_, ast.Name(id=element)]), ast.Call(func=ast.Name("enumerate"), args=[passed, *_]):
            yield element, passed


def _is_list(held: ast.expr, name: str) -> bool:
    if name.endswith("()"):
        match held:
            case ast.Call(func=ast.Attribute(attr=method), args=[]):
                return method == name[2:-2]
        return False
    if name.startswith("*."):
        return isinstance(held, ast.Attribute) and held.attr == name[2:]
    return ast.unparse(held) == name


def keeps(term: ast.expr, is_it: Callable[[ast.expr], bool]) -> bool:
    """Whether ``term`` is what ``is_it`` knows, or torch computes it from that with its gradient, times something."""
    if is_it(term):
        return True
    match term:
        case ast.Call(func=ast.Attribute(value=owner), args=given) if ast.unparse(owner) in _TORCH:
            return any(keeps(argument, is_it) for argument in given)
        case ast.Call(func=ast.Name(id=function) | ast.Attribute(attr=function), args=given) if _is_loss(function):
            return any(keeps(argument, is_it) for argument in given)
        case ast.Call(func=ast.Attribute(value=inner, attr=method)) if method in _COMPUTES:
            return keeps(inner, is_it)
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div(), right=right):
            return keeps(left, is_it) or keeps(right, is_it)
    return False


def _keeps(term: ast.expr, element: str) -> bool:
    """The same for a variable."""
    return keeps(term, lambda node: isinstance(node, ast.Name) and node.id == element)


def _is_loss(function: str) -> bool:
    return any(word in function.lower() for word in _LOSSES)


def _is_entry(term: ast.expr, name: str) -> bool:
    """Whether ``term`` is an entry of the list, perhaps times something: `weight * losses[i]`, `losses[-1]`."""
    match term:
        case ast.Subscript(value=held, slice=ast.Name() | ast.Constant() | ast.UnaryOp()):
            return _is_list(held, name)
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div(), right=right):
            return _is_entry(left, name) or _is_entry(right, name)
    return False


def _is_sum(step: ast.expr) -> bool:
    """Whether ``step`` is a function that adds two values: `lambda a, b: a + b`, `operator.add`."""
    match step:
        case ast.Lambda(body=ast.BinOp(op=ast.Add())) | ast.Attribute(attr="add"):
            return True
    return False


def _adds(part: ast.AST, element: str) -> bool:
    match part:
        case ast.AugAssign(value=value):
            return element in names_in(value)
        case ast.Assign(targets=[ast.Name(id=total)], value=ast.BinOp(left=left, op=ast.Add(), right=right)):
            return any(
                isinstance(one, ast.Name) and one.id == total and _keeps(other, element)
                for one, other in ((left, right), (right, left))
            )
    return False
