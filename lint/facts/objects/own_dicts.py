"""Objects of the program's classes that are dicts: `class Registry(dict)`, and what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..values import Dict, Instance, Ref
from .classes import ancestors
from .dicts import merge_into

if TYPE_CHECKING:
    from ..values import Class, Value

_BASES = frozenset(("builtins.dict", "typing.Dict", "collections.OrderedDict", "collections.UserDict"))
#: Methods by which a class decides itself what a key gives.
_ACCESS = frozenset(
    (
        *("__getitem__", "__setitem__", "__delitem__", "__missing__", "__getattribute__", "__iter__", "__contains__"),
        *("get", "setdefault", "update", "pop", "popitem", "clear", "keys", "values", "items", "copy"),
    )
)
#: The attribute under which an object keeps its entries; no program can name it so.
_ENTRIES = "{key: value}"


def entries_of(value: Value) -> Dict | None:
    """What an object that the program builds holds as a dict; None where it is none, or has ways of its own."""
    if not isinstance(value, Instance) or value.call is None:
        return None
    held = (value.attributes or {}).get(_ENTRIES)
    if held is None and _is_dict(value.cls):
        held = _entries_given(value)
        value.attributes = {**(value.attributes or {}), _ENTRIES: held}
    return held if isinstance(held, Dict) else None


def _is_dict(cls: Class) -> bool:
    classes = (cls, *ancestors(cls))
    # Every call of a method of an object asks this: the bases are few.
    is_dict = any(isinstance(base, Ref) and base.name in _BASES for owner in classes for base in owner.bases)
    return is_dict and _ACCESS.isdisjoint(name for owner in classes for name in owner.body)


def _entries_given(instance: Instance) -> Dict:
    """The entries that the constructor gets; what one of the program's own makes of its arguments is open."""
    call = instance.call
    assert call is not None
    if any("__init__" in owner.body for owner in (instance.cls, *ancestors(instance.cls))):
        return Dict({}, bool(call.args or call.kwargs), call.node, call.place)
    made = Dict({}, call.open_args or call.open_kwargs, call.node, call.place)
    for given in call.args[:1]:
        merge_into(made, given)
    made.items.update(call.kwargs)
    return made
