"""Members of enumerations."""

from __future__ import annotations

from ..values import Class, Const, Dict, Instance, Ref, Result, Seq, Value
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


def is_one_member(left: Value, right: Value) -> bool | None:
    """Whether two values are one member of an enumeration; None where one of them is none, or that is open."""
    if not isinstance(left, Instance) or not isinstance(right, Instance) or left.cls is not right.cls:
        return None
    if not (_is_member(left) and _is_member(right)) or "__eq__" in left.cls.body:
        return None
    if left is right:
        return True
    values = [(it.attributes or {})["value"] for it in (left, right)]
    match values:
        case [Const(one), Const(other)]:
            return one == other  # Two names of one value are one member.
        case [one, other] if _is_auto(one) and _is_auto(other):
            return False
        case [Const(str()), auto] | [auto, Const(str())] if _is_auto(auto) and not _is_text(left.cls):
            return False
    return None


def equals_text(member: Value, text: str) -> bool | None:
    """Whether a member of `class Kind(str, Enum)` is ``text``; None for anything else."""
    if not isinstance(member, Instance) or not _is_member(member) or not _is_text(member.cls):
        return None
    value = (member.attributes or {})["value"]
    return value.value == text if isinstance(value, Const) and "__eq__" not in member.cls.body else None


def _is_member(value: Instance) -> bool:
    return value.call is None and "value" in (value.attributes or {}) and is_enum(value.cls)


def _is_text(cls: Class) -> bool:
    bases = (base for owner in (cls, *ancestors(cls)) for base in owner.bases)
    return any(isinstance(base, Ref) and base.name in ("builtins.str", "enum.StrEnum") for base in bases)


def _is_auto(value: Value) -> bool:
    return isinstance(value, Result) and value.call.name == "enum.auto"


def enum_member(cls: Class, name: str, value: Value) -> Value:
    """The member ``cls.name``, whose ``value`` the class body gives; methods and plain attributes stay as they are."""
    if not isinstance(value, Const | Ref | Class | Seq | Dict) and not _is_auto(value):
        return value
    if cls.attributes is None:
        cls.attributes = {}
    member = cls.attributes.get(name)
    if member is None:
        member = cls.attributes[name] = Instance(cls, None)
        member.attributes = {"value": value, "name": Const(name, value.node)}
    return member
