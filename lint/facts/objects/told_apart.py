"""Sequences of which each element is walked by itself: `for net in (generator, critic)`."""

from __future__ import annotations

from typing import TypeGuard

from ..values import Const, Dict, Instance, Result, Seq, Value
from .containers import GAP, text_of
from .own_dicts import entries_of

#: How many elements are walked one by one.
FEW = 8


def are_told_apart(passed: Value) -> TypeGuard[Seq]:
    """Whether ``passed`` is a few objects or names, of which each makes something of its own: `in (net, critic)`."""
    if not isinstance(passed, Seq) or passed.open or passed.optional or not 1 < len(passed.items) <= FEW:
        return False
    return all(_makes_its_own(item) for item in passed.items)


def is_empty_tuple(value: Value) -> bool:
    """Whether ``value`` is `()`, which nothing can fill."""
    return isinstance(value, Seq) and value.kind == "tuple" and not (value.items or value.open)


def _makes_its_own(item: Value) -> bool:
    """An object, a name, or settings: a dict, a tuple that begins with a name as `("prefix", 20)` does."""
    match item:
        case Instance() | Result() | Seq(_, [Const(str()), *_], False) | Dict(_, False):
            return True
    return isinstance(text_of(item), str)


def keys_of(passed: Value) -> Value:
    """What a loop goes through: of a dict that is wholly known its keys, in order, of a short text its letters.

    Anything else is what it is.
    """
    match entries_of(passed) or passed:
        case Dict(items, False, place=place) if items and not any(GAP in key for key in items):
            return Seq("list", [Const(key) for key in items], False, passed.node, place)
        case Const(str(text)) if 1 < len(text) <= FEW:
            return Seq("list", [Const(letter) for letter in text], False, passed.node)
    return passed
