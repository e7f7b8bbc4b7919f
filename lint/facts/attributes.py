"""Attributes and elements of values: reading, writing, iterating."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .places import Place
from .values import (
    UNKNOWN,
    Absent,
    Attr,
    Choice,
    Class,
    Const,
    Dict,
    Element,
    Function,
    Instance,
    Method,
    Module,
    Param,
    Ref,
    Result,
    Seq,
    Super,
    Unknown,
    Value,
    join,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOP = Place()
#: Calls whose elements are those of their first argument.
_SAME_ELEMENTS = frozenset(
    (
        "builtins.list",
        "builtins.tuple",
        "builtins.reversed",
        "builtins.sorted",
        "builtins.iter",
        "tqdm.tqdm",
        "tqdm.auto.tqdm",
    )
)
_MODULE_LISTS = frozenset(("torch.nn.ModuleList", "torch.nn.Sequential", "torch.nn.modules.container.ModuleList"))


def get_attribute(base: Value, name: str, node: ast.AST | None) -> Value:
    """``base.name``."""
    if type(base) is Ref:
        return Ref(f"{base.name}.{name}", node)
    match base:
        case Module():
            return base.scope.names.get(name) or Ref(f"{base.name}.{name}", node)
        case Choice(options):
            return join(*(get_attribute(option, name, node) for option in options if not is_none(option)))
        case Super():
            found = next((cls.body[name] for cls in ancestors(base.cls) if name in cls.body), None)
            return Attr(base, name, node) if found is None else bound(found, base.instance, node)
        case Unknown():
            return Attr(base, name, node)
    if base.attributes is None:
        base.attributes = {}
    known = base.attributes.get(name)
    if known is None:
        known = _declared(base, name, node)
        if known is not None:
            return known
        known = base.attributes[name] = Attr(base, name, node)
    return known


def is_none(value: Value) -> bool:
    """Whether ``value`` is the literal None."""
    return isinstance(value, Const) and value.value is None


def _declared(base: Value, name: str, node: ast.AST | None) -> Value | None:
    """The attribute as the class of ``base`` declares it."""
    match base:
        case Instance(cls):
            return _of_instance(base, cls, name, node)
        case Class():
            return next((cls.body[name] for cls in (base, *ancestors(base)) if name in cls.body), None)
    return None


def _of_instance(instance: Instance, cls: Class, name: str, node: ast.AST | None) -> Value | None:
    if instance.call is not None and is_dataclass(cls):
        given = field_argument(instance, name)
        if not isinstance(given, Absent):
            return given
    for owner in (cls, *ancestors(cls)):
        if name in owner.fields:
            return owner.fields[name]
        if name in owner.body:
            found = bound(owner.body[name], instance, node)
            # What a dataclass declares is a default: `self` may have been built with something else.
            is_default = instance.call is None and not isinstance(found, Method | Function) and is_dataclass(cls)
            return join(found, UNKNOWN) if is_default else found
    return None


def field_argument(instance: Instance, name: str) -> Value:
    """What the constructor of a dataclass was given for field ``name``."""
    assert instance.call is not None
    owners = (*reversed([*ancestors(instance.cls)]), instance.cls)
    names = [field for cls in owners for field in declared_fields(cls)]
    if not all(isinstance(base, Class) for cls in owners for base in cls.bases):
        names = []  # The fields of an imported class come first.
    return instance.call.argument(names.index(name) if name in names else None, name)


def declared_fields(cls: Class) -> list[str]:
    """The annotated names of a class body, which are the fields of a dataclass."""
    return [
        statement.target.id
        for statement in cls.node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    ]


def is_dataclass(cls: Class) -> bool:
    """Whether the class, or one it derives from, is decorated as a dataclass (attrs and pydantic look alike)."""
    return any(
        isinstance(part, ast.Name | ast.Attribute) and "dataclass" in ast.unparse(part)
        for owner in (cls, *ancestors(cls))
        for decorator in owner.node.decorator_list
        for part in (decorator, getattr(decorator, "func", None))
    )


def bound(value: Value, receiver: Instance, node: ast.AST | None) -> Value:
    """A class attribute seen through an object: functions become methods, properties stay unknown."""
    if not isinstance(value, Function) or isinstance(value.node, ast.Lambda):
        return value
    names = {name.rpartition(".")[2] for name in decorator_names(value)}
    if "staticmethod" in names:
        return value
    if names & {"property", "cached_property", "setter"}:
        return Unknown(node)
    return Method(receiver, value, node)


def decorator_names(function: Function) -> Iterator[str]:
    """The dotted names of its decorators, called or not."""
    for decorator in function.decorators:
        called = decorator.call.func if isinstance(decorator, Result) else decorator
        if isinstance(called, Ref):
            yield called.name


def ancestors(cls: Class) -> Iterator[Class]:
    """The classes of the file that ``cls`` derives from, nearest first."""
    seen = {cls}
    queue = list(cls.bases)
    while queue:
        base = queue.pop(0)
        if isinstance(base, Class) and base not in seen:
            seen.add(base)
            yield base
            queue += base.bases


def set_attribute(base: Value, name: str, value: Value, place: Place) -> Value | None:
    """Remember ``base.name = value``, made at ``place``; gives what the attribute was, None if never looked at."""
    if isinstance(base, Unknown | Choice | Ref | Const):
        return None
    if base.attributes is None:
        base.attributes = {}
    before = base.attributes.get(name)
    if isinstance(base, Instance):
        fields = base.cls.fields
        fields[name] = join(fields[name], value) if name in fields else value
        if base.call is None:
            return before
    maybe = place.deeper_than(made_at(base))
    base.attributes[name] = join(before or Attr(base, name, None), value) if maybe else value
    return before


def set_item(base: Value, key: Value, value: Value, place: Place) -> Value | None:
    """Remember ``base[key] = value``; gives what was there, None if that is not known."""
    if not isinstance(base, Dict):
        if isinstance(base, Seq):
            base.open = True
            base.items.append(value)
        return None
    if not isinstance(key, Const) or not isinstance(key.value, str):
        base.open = True
        return None
    before = base.get(key.value)
    maybe = base.place is not None and place.deeper_than(base.place)
    base.items[key.value] = join(before, value) if maybe else value
    return before


def made_at(value: Value) -> Place:
    """Where the object came into being, as far as known."""
    match value:
        case Result(call):
            return call.place
        case Instance(_, call) if call is not None:
            return call.place
        case Attr(base):
            return made_at(base)
        case Element(of):
            return made_at(of)
        case Param():
            return value.function.place
    return _TOP


def get_item(base: Value, index: Value, node: ast.AST) -> Value:
    """``base[index]``."""
    match base, index:
        case Dict(), Const(str(key)):
            found = base.get(key)
            return UNKNOWN if isinstance(found, Absent) else found
        case Seq(_, items, False), Const(int(position)) if -len(items) <= position < len(items):
            return items[position]
        case Choice(options), _:
            return join(*(get_item(option, index, node) for option in options if not is_none(option)))
        case ((Dict() | Unknown() | Const()), _):
            return Unknown(node)
    if (isinstance(base, Seq) or is_module_list(base)) and isinstance(node, ast.Subscript):
        return base if isinstance(node.slice, ast.Slice) else iterate(base, node)
    return Element(base, node, index.value if isinstance(index, Const) else None)


def is_module_list(value: Value) -> bool:
    """Whether ``value`` is an ``nn.ModuleList`` or ``nn.Sequential``."""
    return isinstance(value, Result) and value.call.name in _MODULE_LISTS


def iterate(value: Value, node: ast.AST | None) -> Value:
    """What a loop over ``value`` binds in each turn."""
    match value:
        case Seq(_, items):
            return _one_of(items, value, node)
        case Choice(options):
            return join(*(iterate(option, node) for option in options if not is_none(option)))
        case Result():
            return _iterate_result(value, node)
        case Dict() | Const() | Unknown():
            return Unknown(node)
    return Element(value, node)


def _iterate_result(value: Result, node: ast.AST | None) -> Value:
    call = value.call
    if call.name == "builtins.enumerate" and call.args:
        return Seq("tuple", [Unknown(node), iterate(call.args[0], node)], False, node)
    if call.name == "builtins.zip":
        return Seq("tuple", [iterate(argument, node) for argument in call.args], call.open_args, node)
    if call.name in _SAME_ELEMENTS and call.args:
        return iterate(call.args[0], node)
    if call.name == "builtins.range":
        return Unknown(node)
    if call.name in _MODULE_LISTS and not call.open_args and call.args:
        held = call.args if call.name.endswith("Sequential") else [iterate(call.args[0], node)]
        return _one_of(held, value, node)
    return Element(value, node)


def _one_of(items: list[Value], container: Value, node: ast.AST | None) -> Value:
    found = join(*items) if items else Element(container, node)
    return Element(container, node) if isinstance(found, Unknown) else found
