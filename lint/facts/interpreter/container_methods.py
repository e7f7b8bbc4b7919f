"""Methods of dicts and lists of the program: what they change in place and what they return."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..objects.attributes import set_item
from ..objects.containers import elements, length_of, together
from ..objects.dicts import merge_into
from ..values import UNKNOWN, Absent, Call, Const, Dict, Ref, Seq, Value, join
from ..walk import Walk, Write
from .open_keys import entry_of

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

#: How methods of settings begin that take entries from files and command lines: `merge_from_file`, `merge_with`.
_MERGING = ("merge_", "update_from_")


def grow(walk: Walk, held: Seq, call: Call) -> None:
    """``layers.append(layer)`` and its like."""
    if call.method == "extend":
        if call.args:
            extend(walk, held, call.args[0])
        return
    appends = call.method == "append"
    times = walk.times_since(held.place) if appends else None
    before = length_of(held)
    held.count = None if times is None or before is None else before + times
    held.may_be_empty = times is None and (held.may_be_empty or not held.items)
    if times is None and appends and held.place is not None and walk.place.deeper_than(held.place):
        held.optional.append(len(held.items))
    held.repeats = held.repeats or not appends or held.place is None or walk.place.loops != held.place.loops
    held.items += call.args[-1:]
    held.open = held.open or not appends or bool(walk.place.loops)


def extend(walk: Walk, held: Seq, given: Value) -> None:
    """``layers.extend(more)`` and ``layers += more``: the list itself grows, by whatever name it goes."""
    times, before, added = walk.times_since(held.place), length_of(held), length_of(given)
    known = isinstance(given, Seq) and not given.open
    held.may_be_empty = not (times and added) and (held.may_be_empty or not held.items)
    held.items, is_whole = together(held.items, [] if given is held else elements(given))
    held.open = held.open or times != 1 or not known or not is_whole
    held.repeats = held.repeats or held.open
    held.count = None if None in (times, before, added) else (before or 0) + (times or 0) * (added or 0)


def dict_method(walk: Walk, held: Dict, name: str, call: Call) -> Value | None:
    """``held.name(...)``: what it returns, None where nothing is known of that."""
    match name, call.args:
        case "update", _:
            _update(walk, held, call)
        case "__setitem__", [Const(str(key)), value]:
            _set(walk, held, key, value, call.node)
        case "__setitem__", _:
            held.open = True
        case "setdefault", [Const(str(key)) as index, value]:
            before = held.get(key)
            value = value if isinstance(before, Absent) else join(before, value)
            set_item(held, index, value, walk.place)
            return value
        case "setdefault", _:
            held.open = True
        case "pop", [Const(str(key)) as index, *default]:
            found = held.get(key)
            set_item(held, index, Absent(call.node), walk.place)
            return (default[0] if default else UNKNOWN) if isinstance(found, Absent) else found
        case (("clear" | "popitem" | "pop"), _):
            held.open = True
            held.items.clear()
            held.keys.clear()
        case _ if name.startswith(_MERGING):
            _forget(held)
        case _:
            return _read(walk, held, name, call)
    return None


def _read(walk: Walk, held: Dict, method: str, call: Call) -> Value | None:
    """The methods that change nothing."""
    match method, call.args:
        case "get", [key, *default] if call.node.args:
            otherwise = default[0] if default else Const(None, call.node)
            return entry_of(walk, held, key, call.node.args[0], call.node, otherwise)
        case "values", []:
            return Seq("list", list(held.items.values()), held.open, call.node, walk.place)
        case "items", []:
            return Seq("list", list(_pairs(held)), held.open, call.node, walk.place)
        case "copy", []:
            return _copy(walk, held, call)
        case "new_child", [Dict() as more]:  # of a `ChainMap`
            made = Dict(dict(held.items), held.open, call.node, walk.place)
            merge_into(made, more)
            return made
        case "clone", []:
            return _clone(walk, held, call)
    return None


def _copy(walk: Walk, held: Dict, call: Call) -> Dict:
    made = Dict(dict(held.items), held.open, call.node, walk.place)
    made.keys = [*held.keys]
    return made


def _clone(walk: Walk, held: Dict, call: Call) -> Dict:
    """A copy that shares no inner settings: what is merged into it leaves the defaults alone."""
    items = {key: _clone(walk, it, call) if isinstance(it, Dict) else it for key, it in held.items.items()}
    return Dict(items, held.open, call.node, walk.place)


def _forget(held: Dict) -> None:
    """What ``held``, and the settings in it, hold is open from now on."""
    for inner in held.items.values():
        if isinstance(inner, Dict):
            _forget(inner)
    held.open = True
    held.items.clear()


def _pairs(held: Dict) -> Iterator[Value]:
    """What `items()` gives; a dict that is not wholly known has other keys too. Without a node no two are the same."""
    for key, value in held.items.items():
        yield Seq("tuple", [Const(key), value], False, None)
    if held.open and held.items:
        yield Seq("tuple", [UNKNOWN, join(*held.items.values())], False, None)


def _update(walk: Walk, held: Dict, call: Call) -> None:
    for argument in call.args:
        if isinstance(argument, Dict):
            for key, value in argument.items.items():
                _set(walk, held, key, value, call.node)
            held.open = held.open or argument.open
        else:
            merge_into(held, argument)
    for key, value in call.kwargs.items():
        _set(walk, held, key, value, call.node)
    held.open = held.open or call.open_kwargs


def merge_in_place(walk: Walk, held: Dict | Ref, given: Dict, node: ast.AST) -> None:
    """``held |= given``, of a dict or of a mapping that a library keeps: `os.environ |= {...}`."""
    for key, value in given.items.items():
        _set(walk, held, key, value, node)
    if isinstance(held, Dict):
        held.open = held.open or given.open


def _set(walk: Walk, held: Dict | Ref, key: str, value: Value, node: ast.AST) -> None:
    before = set_item(held, Const(key), value, walk.place)
    walk.program.writes.append(
        Write(held, key, value, node, walk.place, walk.program.next_order(), before, is_item=True)
    )
