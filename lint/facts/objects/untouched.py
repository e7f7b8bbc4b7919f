"""Plain objects that are as they were built: nothing sets an attribute of theirs, nor gets hold of them."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ..nodes import all_nodes
from ..values import Class, Instance
from .classes import ancestors

if TYPE_CHECKING:
    from ..walk import Walk


def is_just_built(walk: Walk, node: ast.AST) -> bool:
    """Whether `self.x`, in the method being walked, is what the constructor of that very object set.

    So it is in `Sharding("GPT2Block").plugin()`, whoever else builds such objects with other settings.
    """
    if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
        return False
    owner, function = walk.evaluate(node.value), walk.place.function
    if not isinstance(owner, Instance) or owner.call is None or function is None or not walk.place.stack:
        return False
    if owner.copied_by or not _is_plain(owner.cls):
        return False
    stores = _stores_in(walk.program.trees)
    if stores.by_name or node.attr in stores.attributes:
        return False
    entered = walk.place.stack[-1].func
    receiver = entered.value if isinstance(entered, ast.Attribute) else None
    if receiver is owner.call.node:
        return True
    return isinstance(receiver, ast.Name) and receiver.id not in stores.handed_on


def _is_plain(cls: Class) -> bool:
    """Whether no library has anything to do with objects of ``cls``."""
    return all(isinstance(base, Class) for owner in (cls, *ancestors(cls)) for base in owner.bases)


class _Stores(NamedTuple):
    """What the statements of a program set."""

    #: The attributes that are set outside of constructors.
    attributes: frozenset[str]
    #: Whether some are set whose names are computed.
    by_name: bool
    #: The variables that are used otherwise than for an attribute, or a method, of what they hold.
    handed_on: frozenset[str]


@lru_cache(maxsize=4)
def _stores_in(trees: tuple[ast.AST, ...]) -> _Stores:
    attributes, held, loaded, by_name = set[str](), set[ast.AST](), list[ast.Name](), False
    nodes = [node for tree in trees for node in all_nodes(tree)]
    constructed = {part for node in nodes if _is_constructor(node) for part in all_nodes(node)}
    for node in nodes:
        match node:
            case ast.Attribute(value=base, attr=name):
                by_name |= name == "__dict__"
                held.add(base)
                attributes |= {name} if not isinstance(node.ctx, ast.Load) and node not in constructed else set()
            case ast.Name(ctx=ast.Load(), id=name):
                by_name |= name in ("setattr", "vars")
                loaded.append(node)
    return _Stores(frozenset(attributes), by_name, frozenset(name.id for name in loaded if name not in held))


def _is_constructor(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name in ("__init__", "__post_init__")
