"""Members of enumerations."""

from __future__ import annotations

from ..values import Class, Const, Dict, Instance, Ref, Seq, Value
from .classes import ancestors

_ENUMS = frozenset(("enum.Enum", "enum.IntEnum", "enum.StrEnum", "enum.Flag", "enum.IntFlag"))


def is_enum(cls: Class) -> bool:
    """Whether ``cls`` derives from one of the classes of ``enum``."""
    return any(
        isinstance(base, Ref) and base.name in _ENUMS for owner in (cls, *ancestors(cls)) for base in owner.bases
    )


def enum_member(cls: Class, name: str, value: Value) -> Value:
    """The member ``cls.name``, whose ``value`` the class body gives; methods and plain attributes stay as they are."""
    if not isinstance(value, Const | Ref | Class | Seq | Dict):
        return value
    if cls.attributes is None:
        cls.attributes = {}
    member = cls.attributes.get(name)
    if member is None:
        member = cls.attributes[name] = Instance(cls, None)
        member.attributes = {"value": value, "name": Const(name, value.node)}
    return member
