"""Dataclasses as mappings: `asdict(config)`, and `**vars(config)`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..values import Attr, Class, Dict, Instance, Value
from .attributes import get_attribute
from .classes import ancestors, declared_fields, is_dataclass

if TYPE_CHECKING:
    from ..values import Place


def as_dict(instance: Instance, node: ast.AST, place: Place, deep: bool = True) -> Dict | None:
    """The fields of a dataclass by their names; None for an object of another class.

    Args:
        instance: The object.
        node: What asks for them.
        place: Where that stands.
        deep: Whether objects of dataclasses in them become dicts, too.
    """
    if not is_dataclass(instance.cls):
        return None
    owners = (*reversed([*ancestors(instance.cls)]), instance.cls)
    made = Dict({}, not all(isinstance(base, Class) for owner in owners for base in owner.bases), node, place)
    for name in dict.fromkeys(name for owner in owners for name in declared_fields(owner) if _is_field(owner, name)):
        value = get_attribute(instance, name, node)
        inner = as_dict(value, node, place) if deep and isinstance(value, Instance) else None
        made.items[name] = value if inner is None else inner
    return made


def attributes_as_dict(value: Value, node: ast.AST, place: Place) -> Value:
    """``vars(config)`` and ``config.__dict__`` of a dataclass as the dict that they are; others as they stand."""
    match value:
        case Attr(base=Instance() as held, name="__dict__"):
            return as_dict(held, node, place, deep=False) or value
    return value


def _is_field(owner: Class, name: str) -> bool:
    """Whether the annotation of ``name`` makes it a field of the object."""
    for statement in owner.node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=declared), annotation=annotation) if declared == name:
                written = ast.unparse(annotation)
                return "ClassVar" not in written and "InitVar" not in written
    return False
