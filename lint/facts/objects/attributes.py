"""Attributes and elements of values: reading and writing."""

from __future__ import annotations

import ast

from ..straight import only_value
from ..values import (
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
    Partial,
    Place,
    Ref,
    Result,
    Seq,
    Super,
    Unknown,
    Value,
    conditional_options,
    join,
    join_under,
)
from .annotations import annotated_field, narrowed
from .classes import (
    ancestors,
    decorator_names,
    field_argument,
    is_class_method,
    is_dataclass,
    is_torch_module,
    method_of,
)
from .containers import (
    GAP,
    child_named,
    container_kind,
    each,
    fill,
    held_by,
    is_list_of_children,
    is_module_list,
    iterate,
    matching_field,
    read,
    text_of,
)
from .enums import enum_member, is_enum, key_text
from .own_dicts import entries_of
from .slices import at_position, bounds_of, put_at, slice_of, standing_at

_TOP = Place()
#: What classes and functions say their names are, for those of a module's top level.
_NAMES = ("__name__", "__qualname__")
_DICT_METHODS = frozenset(dir(dict))


def get_attribute(base: Value, name: str, node: ast.AST | None) -> Value:
    """``base.name``."""
    if type(base) is Ref:
        return Ref(f"{base.name}.{name}", node)
    match base:
        case Module():
            return base.scope.names.get(name) or Ref(f"{base.name}.{name}", node)
        case Choice():
            return each(base, lambda option: get_attribute(option, name, node))
        case Super():
            found = next((cls.body[name] for cls in ancestors(base.cls) if name in cls.body), None)
            if found is None and name == "__call__" and is_torch_module(base.instance.cls):
                found = method_of(base.instance.cls, "forward")  # which is what `nn.Module` calls
            return Attr(base, name, node) if found is None else bound(found, base.instance, node)
        case Unknown():
            return Attr(base, name, node)
        case Dict(items) if name in items and name not in _DICT_METHODS:
            return items[name]  # a plain dict has no such attribute
    if base.attributes is None:
        base.attributes = {}
    known = base.attributes.get(name)
    if known is None:
        known = _declared(base, name, node)
        if known is not None:
            return known
        known = base.attributes[name] = Attr(base, name, node)
    return known


def _declared(base: Value, name: str, node: ast.AST | None) -> Value | None:
    """The attribute as the class of ``base`` declares it."""
    match base:
        case Instance(cls):
            return _of_instance(base, cls, name, node)
        case Class() | Function() if name in _NAMES and node is not None:
            return Const(base.name, node)
        case Class():
            found = next((cls.body[name] for cls in (base, *ancestors(base)) if name in cls.body), None)
            if isinstance(found, Function) and is_class_method(found):
                return Method(base, found, node)
            found = _given_statically(found) if isinstance(found, Result) else found
            return enum_member(base, name, found) if found is not None and is_enum(base) else found
        case Result() if is_module_list(base):
            return child_named(base, name)
    return None


def _of_instance(instance: Instance, cls: Class, name: str, node: ast.AST | None) -> Value | None:
    if name == "__class__" and instance.call is not None:
        return cls
    if instance.call is not None and is_dataclass(cls):
        given = field_argument(instance, name)
        if not isinstance(given, Absent):
            return given
    for owner in (cls, *ancestors(cls)):
        if name in owner.fields:
            held = owner.fields[name]
            # Stored in one case alone, it is what the class says in the others.
            said = owner.body.get(name) if owner.field_conditions.get(name) else None
            held = held if said is None else join(bound(said, instance, node), held)
            return narrowed(held, annotated_field(cls, name))
        if name in owner.body:
            found = bound(owner.body[name], instance, node)
            # What a dataclass declares is a default: `self` may have been built with something else.
            is_default = instance.call is None and not isinstance(found, Method | Function) and is_dataclass(cls)
            return join(found, UNKNOWN) if is_default else found
        written = matching_field(owner.fields, name)
        if written is not None:
            return written
    return annotated_field(cls, name)


def _given_statically(value: Result) -> Value:
    """The function of `check = staticmethod(is_block)` in a class body; ``value`` itself for other results."""
    is_static = value.call.name == "builtins.staticmethod" and len(value.call.args) == 1
    return value.call.args[0] if is_static else value


def bound(value: Value, receiver: Instance, node: ast.AST | None) -> Value:
    """A class attribute seen through an object: functions become methods, properties stay unknown."""
    if isinstance(value, Partial) and value.call.name == "functools.partialmethod":
        method = Partial(bound(value.func, receiver, node), value.call)
        method.args, method.kwargs = value.args, value.kwargs
        return method
    if isinstance(value, Result):
        return _given_statically(value)
    if not isinstance(value, Function) or isinstance(value.node, ast.Lambda):
        return value
    names = {name.rpartition(".")[2] for name in decorator_names(value)}
    if "staticmethod" in names:
        return value
    if is_class_method(value):
        return Method(receiver.cls, value, node)
    if names & {"property", "cached_property", "setter"}:
        return _handed_out(value, receiver) or Unknown(node)
    return Method(receiver, value, node)


def _handed_out(function: Function, receiver: Instance) -> Value | None:
    """What a property gives that only hands out an attribute: `return getattr(self, self.norm1_name)`."""
    match only_value(function.node):
        case ast.Attribute(value=ast.Name("self"), attr=name) as node if name != function.name:
            return get_attribute(receiver, name, node)
        case ast.Call(
            func=ast.Name("getattr"),
            args=[ast.Name("self"), ast.Attribute(value=ast.Name("self"), attr=holder) as node],
        ) if holder != function.name:
            named = get_attribute(receiver, holder, node)
            ways = [
                (get_attribute(receiver, text, node) if (text := text_of(option)) else Unknown(node), under)
                for option, under in conditional_options(named)
            ]
            return join_under(*ways)
    return None


def set_attribute(base: Value, name: str, value: Value, place: Place) -> Value | None:
    """Remember ``base.name = value``, made at ``place``; gives what the attribute was, None if never looked at."""
    if isinstance(base, Unknown | Choice | Ref | Const):
        return None
    if isinstance(base, Dict):
        return _set_key(base, Const(name, None), value, place)  # settings: a plain dict takes no attributes
    if base.attributes is None:
        base.attributes = {}
    before = base.attributes.get(name)
    if isinstance(base, Instance):
        _set_field(base.cls, name, value, place)
        if base.call is None:
            return before
    maybe = place.deeper_than(made_at(base))
    base.attributes[name] = join(before or Attr(base, name, None), value) if maybe else value
    return before


def _set_field(cls: Class, name: str, value: Value, place: Place) -> None:
    """Remember what ``self.name`` may hold: any of the values stored, each under its conditions."""
    cls.stored.append((name, value, place))
    if name in cls.fields:
        first = cls.field_conditions.get(name, ())
        cls.fields[name] = join_under((cls.fields[name], first), (value, place.guards))
        cls.field_conditions.pop(name, None)
    else:
        cls.fields[name] = value
        cls.field_conditions[name] = place.guards


def set_item(base: Value, key: Value, value: Value, place: Place) -> Value | None:
    """Remember ``base[key] = value``; gives what was there, None if that is not known."""
    match base:
        case Dict():
            return _set_key(base, key, value, place)
        case Instance() if (held := entries_of(base)) is not None:
            return _set_key(held, key, value, place)
        case Seq(place=made) if made is not None and _replaces(base, made, key, value, place):
            return None
        case Result(call) if _replaces(base, call.place, key, value, place):
            return None
        case Seq():
            base.open = True
            base.items.append(value)
        case Result(call) if is_module_list(base) and call.name.endswith("ModuleDict"):
            hold(base, key, value, place, None)
        case Result() if is_module_list(base) and isinstance(value, Instance):
            fill(base, [value], value.node or base.call.node, 0)  # One of them is another one now.
        case Attr(base=module, name="_modules") if (name := text_of(key)) is not None:
            return set_attribute(module, name, value, place)
    return None


def _replaces(base: Seq | Result, made: Place, key: Value, value: Value, place: Place) -> bool:
    """Put a value at a position of a container, made in the same run of a function, where that position is known."""
    is_same_run = (place.function, place.loops, place.stack) == (made.function, made.loops, made.stack)
    if not is_same_run or not isinstance(key, Const) or type(key.value) is not int:
        return False
    before = standing_at(base, key.value)
    if before is None:
        return False
    put_at(base, key.value, _either(before, value, made, place))
    return True


def hold(container: Result, key: Value, module: Value, place: Place, count: int | None) -> None:
    """Remember that ``count`` modules like this one are in the container, under the name ``key`` as far as known."""
    fill(container, [module], container.call.node, count)
    name = text_of(key)
    if name is not None and GAP not in name:
        set_attribute(container, name, module, place)


def _set_key(base: Dict, key: Value, value: Value, place: Place) -> Value | None:
    name = key_text(key)
    if name is None:
        base.open = True
        pattern = text_of(key) or GAP
        base.items[pattern] = join(base.items[pattern], value) if pattern in base.items else value
        if pattern == GAP and base.place is not None and not place.deeper_than(base.place):
            base.keys.append(key)
        return None
    before = base.get(name)
    base.items[name] = value if base.place is None else _either(before, value, base.place, place)
    return before


def _either(before: Value, after: Value, made: Place, place: Place) -> Value:
    """What an entry of a dict that was made at ``made`` is after it was set at ``place``, maybe under conditions."""
    under = place.beyond(made)
    if not under:
        return after
    if place.function is not made.function or place.loops != made.loops:
        return join(before, after)  # Another call, or another iteration, asks the same of another value.
    otherwise = (under[0]._replace(taken=not under[0].taken),) if len(under) == 1 else ()
    return join_under((before, otherwise), (after, under))


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
        case Dict(), _ if (key := key_text(index)) is not None:
            found = read(base, key)
            return UNKNOWN if isinstance(found, Absent) else found
        case Seq(_, items, False), Const(int(position)) if -len(items) <= position < len(items):
            return at_position(base, position, node) or items[position]
        case Choice(), _:
            return each(base, lambda option: get_item(option, index, node))
        case ((Dict() | Unknown() | Const()), _):
            return Unknown(node)
        case Attr(base=module, name="_modules"), _ if (name := text_of(index)) is not None:
            return get_attribute(module, name, node)
        case Attr(base=held, name="__dict__"), Const(str(name)):  # `vars(args)["seed"]`
            return get_attribute(held, name, node)
    if is_list_of_children(base) and isinstance(node, ast.Subscript) and _leaves_out_the_last(node.slice):
        return base
    if (isinstance(base, Seq | Instance) or is_module_list(base)) and isinstance(node, ast.Subscript):
        if not isinstance(node.slice, ast.Slice):
            return _element(base, index, node)
        return slice_of(base, bounds_of(index.items) if isinstance(index, Seq) else None, node)
    if isinstance(index, Seq) and index.kind == "slice":
        return Element(base, node, bounds=bounds_of(index.items))
    return Element(base, node, index.value if isinstance(index, Const) else None)


def _leaves_out_the_last(index: ast.expr) -> bool:
    """Whether it is `[:-1]` or `[:-2]`: a backbone without its head."""
    match index:
        case ast.Slice(lower=None, upper=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1 | 2)), step=None):
            return True
    return False


def _element(base: Value, index: Value, node: ast.AST) -> Value:
    """An element of a list or a module container at a position or under a name."""
    match base, index:
        case Result(), Const(str(name)) if is_module_list(base):
            named = (base.attributes or {}).get(name) or child_named(base, name)
            if named is not None and not isinstance(named, Attr):
                return named
    held = held_by(base)
    match base, index:
        case Result(call), Const(int(position)) if container_kind(base) == "Sequential" and not call.open_args:
            return held[position] if -len(held) <= position < len(held) else Element(base, node, position)
        case Result(), Const(int(position)) if container_kind(base) == "ModuleList":
            return at_position(base, position, node) or iterate(base, node)
    if not held and isinstance(base, Instance):
        return Element(base, node, index.value if isinstance(index, Const) else None)
    return join(*held) if container_kind(base) == "ModuleDict" and held else iterate(base, node)
