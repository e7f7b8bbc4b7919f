"""The texts that names in a condition stand for: `FROZEN = ("embed", "pos")`, `freeze(model, ["embed"])`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, TypeAlias

from ...facts.nodes import all_nodes
from ...facts.parameters import defaults, parameter_names, positional_names
from .own_texts import held_by_own
from .text_values import bound_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...facts.values import Function, Place
    from ...facts.walk import Program

#: Gives the expression that a name stands for; None where that is not known.
Meant: TypeAlias = Callable[[ast.expr], ast.expr | None]


def meant_at(program: Program, place: Place) -> Meant:
    """What names mean at ``place`` that stand for texts, or lists of texts, which are written down."""
    return partial(_meant, program, place)


def _meant(program: Program, place: Place, node: ast.expr) -> ast.expr | None:
    function = place.function
    if isinstance(node, ast.Attribute) and function is not None:
        held = held_by_own(program.tree_with(function.node), function.node, node)
        return held if held is None or _is_written(held) else _meant(program, place, held)
    if not isinstance(node, ast.Name):
        return None
    if function is not None:
        local = _texts_bound_in(function.node)
        if node.id in parameter_names(function.node):
            return None if node.id in local else _given(program, place, function, node.id)
        if node.id in local:
            return local[node.id]
    return _at_top(program, program.tree if function is None else function.node, node.id)


def _at_top(program: Program, here: ast.AST, name: str) -> ast.expr | None:
    """What ``name`` stands for in the file that ``here`` is in."""
    return _texts_bound_in(program.tree_with(here)).get(name)


def _given(program: Program, place: Place, function: Function, name: str) -> ast.expr | None:
    """What the call that led to ``place`` gives for the parameter ``name``, or what that is by default."""
    if not place.stack:
        return None
    call, names = place.stack[-1], positional_names(function.node)
    if any(isinstance(part, ast.Starred) for part in call.args) or any(word.arg is None for word in call.keywords):
        return None
    is_bound = function.owner is not None and len(names) > 0 and names[0] in ("self", "cls")
    taken = names[is_bound:]
    written = dict(zip(taken, call.args, strict=False)) | {str(it.arg): it.value for it in call.keywords}
    if function.node.args.vararg is not None:
        written[function.node.args.vararg.arg] = ast.Tuple(call.args[len(taken) :], ast.Load())
    given = written.get(name) or defaults(function.node).get(name)
    if isinstance(given, ast.Name):
        given = _at_top(program, call, given.id)
    return given if given is not None and _is_written(given) else None


@lru_cache(maxsize=16)
def _texts_bound_in(scope: ast.AST) -> Mapping[str, ast.expr]:
    """The names that one statement in ``scope`` binds to texts, and that nothing changes in place."""
    nodes = list(all_nodes(scope))
    held = (node.value for node in nodes if isinstance(node, ast.Attribute))
    changed = {node.id for node in held if isinstance(node, ast.Name)}
    return {name: value for name, value in bound_in(nodes).items() if _is_written(value) and name not in changed}


def _is_written(node: ast.expr) -> bool:
    """Whether it is a text or a number, or a display of them."""
    match node:
        case ast.Constant():
            return True
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
            return all(isinstance(part, ast.Constant) for part in parts)
    return False
