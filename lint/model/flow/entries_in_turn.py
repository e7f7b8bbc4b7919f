"""Entries of one list or dict that each iteration of a loop fills from another one: `kept[i] = run(kept[i - 1])`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes
from ...facts.surroundings import parents_in
from .statements import body_around

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...facts.values import Call
    from ..history import History


def cuts_entries(run: History, cut: Call, checkpoint: Call) -> bool:
    """Whether ``cut`` detaches what an iteration gets of the one before, or hands on to the next, in one container.

    `kept[name] = checkpoint(stage, kept[last].detach())`, or `y = checkpoint(stage, kept[i])` and
    `kept[i + 1] = y.detach()`.
    """
    if not cut.place.loops or cut.place.loops != checkpoint.place.loops:
        return False
    parents = parents_in(body_around(run, checkpoint))
    given = {name for argument in checkpoint.node.args[1:] for name in _containers(argument)}
    result = _stored(checkpoint.node, parents)
    if cut.node in checkpoint.node.args[1:]:
        return _container(result) in given and _container(result) != ""
    is_result = isinstance(result, ast.Name) and isinstance(cut.attribute, ast.Attribute)
    source = cut.attribute.value if cut.attribute is not None else None
    if not is_result or not isinstance(source, ast.Name) or not isinstance(result, ast.Name) or source.id != result.id:
        return False
    return _container(_stored(cut.node, parents)) in given - {""}


def _containers(node: ast.expr) -> list[str]:
    return [_container(part) for part in all_nodes(node) if isinstance(part, ast.Subscript)]


def _container(node: ast.AST | None) -> str:
    """`kept` of `kept[i]`."""
    return node.value.id if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) else ""


def _stored(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> ast.expr | None:
    """Where an assignment stores ``node``, by itself or as one of two ways."""
    around = parents.get(node)
    if isinstance(around, ast.IfExp) and node is not around.test:
        around = parents.get(around)
    return around.targets[0] if isinstance(around, ast.Assign) and len(around.targets) == 1 else None
