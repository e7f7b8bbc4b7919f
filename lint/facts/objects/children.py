"""How modules get their children: ``add_module``, ``register_module`` and what the constructor of a base class gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..interpreter.bindings import write
from ..values import Attr, Const, Dict, Instance, Result, Seq, Super, Value, options
from .attributes import hold, set_attribute
from .containers import (
    ITEMS,
    container_kind,
    elements,
    fill,
    first_given,
    given_modules,
    is_module_list,
    length_of,
    text_of,
)

if TYPE_CHECKING:
    import ast

    from ..values import Call
    from ..walk import Walk

_REGISTERING = frozenset(("add_module", "register_module"))
_FILLING = frozenset(("append", "extend", "insert"))


def take_children(walk: Walk, call: Call) -> bool:
    """Whether the call, of a method of a module, gave it children, which are held from now on."""
    match call.func:
        case Attr(base=Super() as parent, name="__init__"):
            hold_given(parent.instance, call)
            return True
        case Attr(base=base, name=name) if name in _REGISTERING:
            return _register(walk, base.instance if isinstance(base, Super) else base, call)
        case Attr(base=base, name=name) if name in _FILLING:
            return _fill(walk, base.instance if isinstance(base, Super) else base, call)
        case Attr(base=Result() as base, name="update") if container_kind(base) == "ModuleDict":
            return _update(base, call)
    return False


def hold_given(instance: Instance, call: Call) -> None:
    """Hold what the constructor of PyTorch's container gets for ``instance``, an object derived from one."""
    kind = container_kind(instance)
    held = given_modules(kind, call) if kind else []
    if held:
        items = Seq("list", held, True, call.node)
        if first_given(call) is held[0] and call.spread_count == len(call.spread):
            items.count = len(held)
        set_attribute(instance, ITEMS, items, call.place)


def _register(walk: Walk, base: Value, call: Call) -> bool:
    name, module = call.argument(0, "name"), call.argument(1, "module")
    if is_module_list(base) and isinstance(base, Result):
        hold(base, name, module, call.place, _in_all(walk, base, 1))
        return True
    fields = [text for option in options(name) if (text := text_of(option)) is not None]
    if isinstance(base, Instance):
        for field in fields:
            write(walk, base, field, module, call.node)
    return isinstance(base, Instance) and bool(fields)


def add_modules(walk: Walk, held: Result, given: Value, node: ast.AST) -> None:
    """``blocks.extend(more)`` and ``blocks += more`` for a container of PyTorch."""
    fill(held, elements(given), node, _in_all(walk, held, length_of(given)))


def _fill(walk: Walk, base: Value, call: Call) -> bool:
    extends = call.method == "extend"
    if isinstance(base, Result) and is_module_list(base):
        if not extends:
            fill(base, call.args[-1:], call.node, _in_all(walk, base, 1))
        elif call.args:
            add_modules(walk, base, call.args[0], call.node)
        return True
    added = call.args[-1:] if not extends else elements(call.args[0]) if call.args else []
    if isinstance(base, Instance) and container_kind(base):
        before = base.cls.fields.get(ITEMS)
        held = [*(before.items if isinstance(before, Seq) else []), *added]
        base.cls.fields[ITEMS] = Seq("list", held, True, call.node)
        if base.attributes is not None:
            own = base.attributes.get(ITEMS)
            base.attributes[ITEMS] = Seq(
                "list", [*(own.items if isinstance(own, Seq) else []), *added], True, call.node
            )
        return True
    return False


def _update(held: Result, call: Call) -> bool:
    """``modules.update({"norm": norm})``."""
    given = call.argument(0, "modules")
    for name, module in given.items.items() if isinstance(given, Dict) else ():
        hold(held, Const(name), module, call.place, None)
    return isinstance(given, Dict)


def _in_all(walk: Walk, held: Result, each: int | None) -> int | None:
    """How many modules the statement adds to ``held`` when each of its iterations adds ``each``."""
    times = walk.times_since(held.call.place)
    return None if times is None or each is None else times * each
