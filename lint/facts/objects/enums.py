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


def key_text(key: Value) -> str | None:
    """What stands for ``key`` among the keys of a dict: its text, or a member's name; None for any other key.

    A member of `class Kind(str, Enum)` and its value are one key.
    """
    match key:
        case Const(str(text)):
            return text
        case Instance(cls, None) if key.attributes and is_enum(cls):
            value, name = key.attributes.get("value"), key.attributes.get("name")
            if isinstance(value, Const) and isinstance(value.value, str) and _is_text(cls):
                return value.value
            return f"{cls.name}.{name.value}" if isinstance(name, Const) else None
    return None


def _is_text(cls: Class) -> bool:
    bases = (base for owner in (cls, *ancestors(cls)) for base in owner.bases)
    return any(isinstance(base, Ref) and base.name in ("builtins.str", "enum.StrEnum") for base in bases)


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
