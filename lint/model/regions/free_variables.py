"""Names that a function reads when it runs, not when it is made."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.identifiers import names_in
from ...facts.nodes import all_nodes, source_text
from ...facts.scopes import bound_names

if TYPE_CHECKING:
    from ...facts.values import FunctionNode, Loop

#: Attributes of a tensor that carry no gradient.
_WITHOUT_GRAPH = frozenset(("detach", "data", "shape", "dtype", "device", "size"))


def free_names(function: FunctionNode) -> frozenset[str]:
    """The names the body reads and does not bind itself; defaults are read at once and do not count."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    own = {argument.arg for argument in every if argument is not None} | set(bound_names(function))
    body = [function.body] if isinstance(function, ast.Lambda) else function.body
    return frozenset(
        node.id
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in own
    )


def names_bound_by(loop: Loop) -> frozenset[str]:
    """The names each iteration of ``loop`` binds anew."""
    if isinstance(loop, ast.comprehension):
        return names_in(loop.target)
    return frozenset(bound_names(loop))


def attributes_bound_by(loop: Loop) -> frozenset[str]:
    """The attributes that each iteration of ``loop`` sets itself, as text: `self.step`."""
    parts = (part for part in all_nodes(loop) if isinstance(part, ast.Attribute))
    return frozenset(source_text(part) for part in parts if isinstance(part.ctx, ast.Store))


def read_with_graph(function: FunctionNode) -> frozenset[str]:
    """The names that ``function`` closes over, other than to detach them or to ask for their shape."""
    names = free_names(function)
    parts = list(all_nodes(function))
    plain = {id(part.value) for part in parts if isinstance(part, ast.Attribute) and part.attr in _WITHOUT_GRAPH}
    return frozenset(
        part.id for part in parts if isinstance(part, ast.Name) and part.id in names and id(part) not in plain
    )
