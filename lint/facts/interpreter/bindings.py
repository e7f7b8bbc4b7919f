"""Assignment: targets to names, attributes and items."""

from __future__ import annotations

import ast

from ..objects.attributes import set_attribute, set_item
from ..objects.containers import is_module_list, iterate
from ..objects.slices import at_position, slice_of
from ..values import (
    UNKNOWN,
    Attr,
    Choice,
    Const,
    Dict,
    Element,
    Seq,
    Unknown,
    Value,
    conditional_options,
    join,
    join_under,
)
from ..walk import Store, Walk, Write
from .generators import yields


def assign(walk: Walk, target: ast.expr, value: Value, node: ast.AST) -> None:
    """Bind ``target`` to ``value``; ``node`` is the statement that says so."""
    match target:
        case ast.Name(id=name):
            walk.scope.bind(name, value)
        case ast.Attribute(value=base, attr=name):
            write(walk, walk.evaluate(base), name, value, node)
        case ast.Subscript(value=base, slice=index):
            held, key = walk.evaluate(base), walk.evaluate(index)
            if isinstance(held, Attr) and held.name == "__dict__" and isinstance(key, Const):
                write(walk, held.base, str(key.value), value, node)  # `vars(args)["seed"] = 1`
                return
            store(walk, held, key, value)
            _assign_item(walk, held, key, value, node)
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            for part, element in zip(targets, _unpack(value, targets), strict=True):
                assign(walk, part, element, node)
        case ast.Starred(value=inner):
            assign(walk, inner, value, node)


def write(walk: Walk, base: Value, name: str, value: Value, node: ast.AST, augmented: bool = False) -> None:
    """Record ``base.name = value``."""
    before = set_attribute(base, name, _while_it_lasts(walk, value), walk.place)
    order = walk.program.next_order()
    walk.program.writes.append(Write(base, name, value, node, walk.place, order, before, augmented=augmented))


def _while_it_lasts(walk: Walk, value: Value) -> Value:
    """A flag that a context manager sets and puts back is open: whoever enters it reads what it set."""
    function = walk.scope.node
    is_flag = isinstance(value, Const) and (value.value is None or isinstance(value.value, bool))
    lends = is_flag and isinstance(function, ast.FunctionDef) and yields(walk.program, function)
    return join(value, UNKNOWN) if lends else value


def store(walk: Walk, base: Value, key: Value, value: Value) -> None:
    """Record that the part ``key`` of the tensor ``base`` becomes ``value``, or gets it added."""
    if not isinstance(base, Dict | Seq):
        walk.program.stores.append(Store(base, key, value, walk.place, walk.program.next_order()))


def _assign_item(walk: Walk, base: Value, key: Value, value: Value, node: ast.AST) -> None:
    before = set_item(base, key, value, walk.place)
    if isinstance(key, Const) and isinstance(key.value, str):
        order = walk.program.next_order()
        walk.program.writes.append(Write(base, key.value, value, node, walk.place, order, before, is_item=True))


def _unpack(value: Value, targets: list[ast.expr]) -> list[Value]:
    if isinstance(value, Choice) and any(isinstance(option, Seq) or is_module_list(option) for option in value.options):
        ways = [(_unpack(option, targets), under) for option, under in conditional_options(value)]
        return [join_under(*((parts[index], under) for parts, under in ways)) for index in range(len(targets))]
    star = next((index for index, target in enumerate(targets) if isinstance(target, ast.Starred)), None)
    if star is not None:
        return _unpack_around(value, targets, star)
    if isinstance(value, Seq) and not value.open and len(value.items) == len(targets):
        return value.items
    if isinstance(value, Seq) and value.open:
        return [iterate(value, target) for target in targets]
    if is_module_list(value):
        count = len(targets)
        parts = [at_position(value, index, target, count) for index, target in enumerate(targets)]
        return [part or Element(value, targets[index], index) for index, part in enumerate(parts)]
    return [Element(value, target, index) for index, target in enumerate(targets)]


def _unpack_around(value: Value, targets: list[ast.expr], star: int) -> list[Value]:
    """The same where the target at ``star`` takes what the others leave: `first, *rest = self.stages`."""
    behind = len(targets) - star - 1
    if not isinstance(value, Seq) and not is_module_list(value):
        parts: list[Value] = [Element(value, target, None) for target in targets]
        parts[star] = Unknown(targets[star])
        return parts
    positions = [index if index < star else index - len(targets) for index in range(len(targets))]
    parts = [
        at_position(value, position, target) or iterate(value, target)
        for position, target in zip(positions, targets, strict=True)
    ]
    parts[star] = slice_of(value, slice(star, -behind or None), targets[star])
    return parts
