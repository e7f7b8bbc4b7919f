"""What a dict gives for a key that is open: of `LAYERS[args.kind]` one of its values, each for its key."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from ..nodes import all_nodes
from ..objects.attributes import get_item
from ..objects.containers import each, read
from ..objects.enums import key_text
from ..objects.own_dicts import entries_of
from ..origin import stands_for
from ..values import (
    UNKNOWN,
    Absent,
    Choice,
    Class,
    Const,
    Dict,
    Function,
    Guard,
    Partial,
    Unknown,
    Value,
    is_absent,
    join,
    join_under,
    same,
)

if TYPE_CHECKING:
    from ..walk import Walk

#: More entries than this are not compared; more values than a choice may have tell nothing either.
_MOST = 12
#: What gives a dict entries whose keys are not written there.
_FILLING = ("setdefault", "update", "__setitem__")


def item_of(walk: Walk, base: Value, index: Value, node: ast.Subscript) -> Value:
    """``base[index]``."""
    if isinstance(base, Choice):
        return each(base, lambda option: item_of(walk, option, index, node))
    held = base if isinstance(base, Dict) else entries_of(base)
    return get_item(base, index, node) if held is None else entry_of(walk, held, index, node.slice, node)


def entry_of(walk: Walk, held: Dict, key: Value, asked: ast.expr, node: ast.AST, default: Value | None = None) -> Value:
    """The value of ``held`` at ``key``.

    Args:
        walk: Where the program is.
        held: The dict.
        key: What the program asks for.
        asked: The expression for it.
        node: The expression that reads the dict.
        default: What it gives for a key that it does not have; None where that raises.
    """
    if isinstance(key, Choice):
        return each(key, lambda option: entry_of(walk, held, option, asked, node, default))
    name = key_text(key)
    if name is not None:
        found = read(held, name) if default is None else held.get(name)
        return found if not isinstance(found, Absent) else UNKNOWN if default is None else default
    if isinstance(key, Const):  # A number; what is not there may have come later.
        return held.items.get(repr(key.value)) or Unknown(node)
    if held.open or _is_plain(held):
        return Unknown(node)
    if held.display is None or held.display in _filled(walk.program.tree_with(held.display)):
        rest = Unknown(node) if default is None else join(default, Unknown(node))
        return _registered(held, key, asked, rest) if _holds_code(held) else Unknown(node)
    keys = _keys(held, held.display)
    return _one_of(keys, held, key, asked, default) if keys else Unknown(node)


def _is_plain(held: Dict) -> bool:
    """Whether it holds counts and flags, which change, or more than is compared."""
    values = held.items.values()
    plain = [isinstance(value, Const) and not isinstance(value.value, str) for value in values]
    return len(plain) > _MOST or all(plain) or any(map(is_absent, values))


def _holds_code(held: Dict) -> bool:
    """Whether it is a dict of functions and classes alone, as the program makes it."""
    values = held.items.values()
    return isinstance(held.node, ast.Dict | ast.Call) and all(
        isinstance(it, Function | Class | Partial) for it in values
    )


def _registered(held: Dict, key: Value, asked: ast.expr, rest: Value) -> Value:
    """What a registry, which other files may fill too, has for ``key``; ``rest`` is what may come of another one."""
    return _one_of({name: name for name in held.items}, held, key, asked, rest)


def _keys(held: Dict, display: ast.Dict) -> dict[str, object]:
    """The keys of a table, by their texts."""
    written = (key.value for key in display.keys if isinstance(key, ast.Constant))
    keys = {value if isinstance(value, str) else repr(value): value for value in written}
    # Another one, of `**more`, may stand for a number.
    is_known = all(name in keys or (key_text(Const(name)) and name.isidentifier()) for name in held.items)
    return {name: keys.get(name, name) for name in held.items} if is_known else {}


@lru_cache(maxsize=64)
def _filled(tree: ast.AST) -> frozenset[ast.AST]:
    """The dicts that are written in a program and get entries elsewhere in it: registries."""
    written: list[tuple[ast.AST, str]] = []
    names: set[str] = set()
    for node in all_nodes(tree):
        match node:
            case (
                ast.Assign(targets=[target], value=ast.Dict() as made)
                | ast.AnnAssign(target=target, value=ast.Dict() as made)
            ):
                written.append((made, _name(target)))
            case ast.Subscript(value=held, slice=key, ctx=ast.Store() | ast.Del()) if not isinstance(key, ast.Constant):
                names.add(_name(held))
            case ast.Call(func=ast.Attribute(value=held, attr=method)) if method in _FILLING:
                names.add(_name(held))
    return frozenset(made for made, name in written if name in names)


def _name(target: ast.expr) -> str:
    match target:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _one_of(keys: dict[str, object], held: Dict, key: Value, asked: ast.expr, default: Value | None) -> Value:
    """Any of the values, as an `if kind == "a": ... elif kind in ("b", "c"): ... else: ...` would give them."""
    groups: list[tuple[Value, list[object]]] = [] if default is None else [(default, [])]
    for name, value in held.items.items():
        alike = next((constants for other, constants in groups if same(other, value)), None)
        if alike is None:
            groups.append((value, [keys[name]]))
        else:
            alike.append(keys[name])
    # A key that the dict does not have gives the default, or raises: the last way needs no condition of its own.
    *first, (rest, _) = reversed(groups)
    ways: list[tuple[Value, tuple[Guard, ...]]] = []
    others: tuple[Guard, ...] = ()
    for value, constants in first:
        test = _asks(asked, tuple(constants))
        ways.append((value, (*others, Guard(test, key, True))))
        others = (*others, Guard(test, key, False))
    return join_under(*ways, (rest, others))


@lru_cache(maxsize=256)
def _asks(asked: ast.expr, keys: tuple[object, ...]) -> ast.Compare:
    """`args.kind == "conv"`: the same node each time, so that the same condition is known for one."""
    constants: list[ast.expr] = [ast.copy_location(ast.Constant(key), asked) for key in keys]  # type: ignore[arg-type]
    several = ast.copy_location(ast.Tuple(constants, ast.Load()), asked)
    is_one = len(keys) == 1
    test = ast.Compare(asked, [ast.Eq() if is_one else ast.In()], constants if is_one else [several])
    stands_for(test, asked)
    return test
