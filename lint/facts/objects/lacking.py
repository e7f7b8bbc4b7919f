"""Attributes that an object of the program surely lacks: `getattr(config, "name", default)` gives the default."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ..values import Class, Function, Instance, Method, Ref
from .classes import ancestors, is_dataclass, is_plain

if TYPE_CHECKING:
    from ..values import Call, Value
    from ..walk import Program

#: What sets attributes, or makes them up, without their names.
_OPEN = re.compile(r"\b(?:setattr|__setattr__|__getattr__|__getattribute__|__dict__|vars|exec|globals)\b")
#: Modules whose functions set no attributes, but for what is said above.
_READERS = ("builtins.", "dataclasses.", "copy.", "json.", "logging.", "pprint.")


def lacks(program: Program, held: Value, name: str) -> bool:
    """Whether ``held``, which the program builds of a plain class of its own, has no attribute ``name`` at any time.

    Whatever reads or writes it by a dot may do so with this object.
    """
    if not isinstance(held, Instance) or held.call is None or name in (held.attributes or {}):
        return False
    classes = (held.cls, *ancestors(held.cls))
    if not is_plain(held.cls) or not all(_is_as_written(cls) for cls in classes) or hasattr(object, name):
        return False
    if any(name in cls.body or name in cls.fields for cls in classes):
        return False
    if any(_may_set(text, name) for text in (program.text, *program.texts.values())):
        return False
    return not any(held in (*call.args, *call.kwargs.values()) and _is_of_others(call) for call in program.calls)


def _is_of_others(call: Call) -> bool:
    """Whether ``call`` runs code that is not read, and that may set attributes of what it gets."""
    match call.func:
        case Function() | Method() | Class():
            return False
        case Ref(name):
            return not name.startswith(_READERS)
    return True


def _is_as_written(cls: Class) -> bool:
    return not cls.node.keywords and (not cls.node.decorator_list or is_dataclass(cls))


@lru_cache(maxsize=64)
def _may_set(text: str, name: str) -> bool:
    return _OPEN.search(text) is not None or re.search(rf"\.\s*{re.escape(name)}\b", text) is not None
