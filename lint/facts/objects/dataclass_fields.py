"""Objects of fields as mappings: `asdict(config)`, `config.model_dump()`, and `**vars(config)`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..values import Attr, Class, Dict, Instance, Ref, Result, Value
from .attributes import get_attribute
from .classes import ancestors, declared_fields, is_dataclass
from .parsers import Namespace

if TYPE_CHECKING:
    from ..values import Place

#: Base classes that make a class one of fields, and hold nothing themselves; `BaseSettings` reads the environment.
_PLAIN_BASES = ("pydantic.BaseModel", "typing.NamedTuple")
#: Their methods that give the fields.
AS_DICT = ("_asdict", "model_dump", "dict")
_NAMESPACES = ("types.SimpleNamespace", "argparse.Namespace")


def as_dict(instance: Instance, node: ast.AST, place: Place, deep: bool = True) -> Dict | None:
    """The fields of a dataclass, or of its kin, by their names; None for an object of another class.

    Args:
        instance: The object.
        node: What asks for them.
        place: Where that stands.
        deep: Whether objects of dataclasses in them become dicts, too.
    """
    owners = (*reversed([*ancestors(instance.cls)]), instance.cls)
    library = [base for owner in owners for base in owner.bases if not isinstance(base, Class)]
    plain = [base for base in library if isinstance(base, Ref) and base.name in _PLAIN_BASES]
    if not plain and not is_dataclass(instance.cls):
        return None
    made = Dict({}, len(plain) < len(library), node, place)
    for name in dict.fromkeys(name for owner in owners for name in declared_fields(owner) if _is_field(owner, name)):
        value = get_attribute(instance, name, node)
        inner = as_dict(value, node, place) if deep and isinstance(value, Instance) else None
        made.items[name] = value if inner is None else inner
    return made


def attributes_as_dict(value: Value, node: ast.AST, place: Place) -> Value:
    """``vars(config)`` and ``config.__dict__`` of a dataclass or a namespace as their dict; others as they stand."""
    match value:
        case Attr(base=Instance() as held, name="__dict__"):
            return as_dict(held, node, place, deep=False) or value
        case Attr(base=Result(call) as held, name="__dict__") if call.name in _NAMESPACES:
            return Dict(_stored(held), call.open_kwargs, node, place)
        case Attr(base=Namespace() as held, name="__dict__"):
            return Dict(_stored(held), True, node, place)  # Others may have added options to the parser.
    return value


def _stored(namespace: Result) -> dict[str, Value]:
    """The attributes that ``namespace`` was given, without those that it was only asked for."""
    held = (namespace.attributes or {}).items()
    return {name: value for name, value in held if type(value) is not Attr or value.base is not namespace}


def _is_field(owner: Class, name: str) -> bool:
    """Whether the annotation of ``name`` makes it a field of the object."""
    for statement in owner.node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=declared), annotation=annotation) if declared == name:
                written = ast.unparse(annotation)
                return "ClassVar" not in written and "InitVar" not in written
    return name in declared_fields(owner)
