"""What containers hold: lists, dicts, PyTorch's module containers and the classes derived from them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ..values import (
    Attr,
    Choice,
    Const,
    Dict,
    Element,
    Instance,
    Ref,
    Result,
    Seq,
    Template,
    Unknown,
    Value,
    conditional_options,
    join,
    join_under,
    options,
)
from .classes import ancestors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..values import Call, Guard

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
#: The name of the field for what a container is given without one: ``super().__init__(*layers)``, ``append``.
ITEMS = "[]"
#: What stands for the unknown part of a field's name: ``setattr(self, f"stage{i}", stage)`` writes ``stage{}``.
GAP = "{}"
#: Elements of a list that are known one by one.
MAX_ITEMS = 4_096
_ZIP = "builtins.zip"
_MODULE_CONTAINERS = ("ModuleList", "Sequential", "ModuleDict")
_CONTAINER_NAMES = frozenset(
    f"{where}.{kind}"
    for where in ("torch.nn", "torch.nn.modules", "torch.nn.modules.container", "mmengine.model", "mmcv.runner")
    for kind in _MODULE_CONTAINERS
)
#: Methods of a module that give the modules it holds.
_CHILDREN = frozenset(("children", "values"))
_ENTRIES = frozenset(("keys", "values", "items"))
_NAMED_CHILDREN = frozenset(("named_children", "items"))


def is_module_list(value: Value) -> bool:
    """Whether ``value`` is an ``nn.ModuleList``, ``nn.Sequential`` or ``nn.ModuleDict``."""
    return isinstance(value, Result) and value.call.name in _CONTAINER_NAMES


def container_kind(value: Value) -> str:
    """``ModuleList``, ``Sequential`` or ``ModuleDict`` for one of these or an object derived from it, else nothing."""
    match value:
        case Result(call) if call.name in _CONTAINER_NAMES:
            return call.name.rpartition(".")[2]
        case Instance(cls):
            bases = (base for owner in (cls, *ancestors(cls)) for base in owner.bases if isinstance(base, Ref))
            return next((base.name.rpartition(".")[2] for base in bases if base.name in _CONTAINER_NAMES), "")
    return ""


def held_by(value: Value) -> list[Value]:
    """The modules that a module container was given, in order as far as that is known; none for anything else."""
    match value:
        case Result(call) if call.name in _CONTAINER_NAMES:
            return given_to(call)
        case Instance(cls) if container_kind(value):
            fields = {name: held for owner in (*ancestors(cls), cls) for name, held in owner.fields.items()}
            given = fields.pop(ITEMS, Seq("list", [], True, value.node))
            if value.attributes is not None:  # What other objects of its class were given is not in this one.
                given = value.attributes.get(ITEMS) or Seq("list", [], True, value.node)
            # A module that it has as an attribute is a child, what is in a plain list or dict is none.
            return [*_items(given), *(part for held in fields.values() for part in options(held) if _is_child(part))]
    return []


def children_of(value: Value) -> list[Value]:
    """The values that ``children()`` goes through: of a container, or the fields of an object of the file."""
    if isinstance(value, Instance) and not container_kind(value):
        fields = [field for owner in (value.cls, *ancestors(value.cls)) for field in owner.fields.values()]
        return [option for field in fields for option in options(field) if _may_be_module(option)]
    return held_by(value)


def named_children(value: Value) -> dict[str, Value]:
    """What ``named_children()`` of an object of the file gives, where each field is one module; empty otherwise."""
    if not isinstance(value, Instance) or container_kind(value):
        return {}
    fields = {name: field for owner in (value.cls, *ancestors(value.cls)) for name, field in owner.fields.items()}
    modules = {name: field for name, field in fields.items() if any(map(_may_be_module, options(field)))}
    return modules if all(len(options(field)) == 1 for field in modules.values()) else {}


def _may_be_module(value: Value) -> bool:
    return isinstance(value, Instance | Result)


def _is_child(value: Value) -> bool:
    return not isinstance(value, Seq | Dict | Const)


def given_to(call: Call) -> list[Value]:
    """The modules among the arguments of a call that builds a container."""
    return given_modules(call.name.rpartition(".")[2], call)


def given_modules(kind: str, call: Call) -> list[Value]:
    """The modules among the arguments of ``call``, as the constructor of a container of this kind takes them."""
    given = [*call.args, *call.spread]
    if kind == "Sequential" and not _is_dict(given):
        return given
    return [part for argument in given for part in _elements_of(argument)]


def first_given(call: Call) -> Value | None:
    """The module that a call which builds an `nn.Sequential` certainly begins with; None when that is open."""
    match call.args:
        case [Dict(items, False)]:
            return next(iter(items.values()), None)
        case [first, *_]:
            return first
    # What a loop makes stands once for all of it: `*[block() for _ in range(n)]`.
    is_known = call.spread_count == len(call.spread) or (len(call.spread) == 1 and bool(call.spread_count))
    return call.spread[0] if call.spread and is_known else None


def first_held(instance: Instance) -> Value | None:
    """The module that an object of a class derived from `nn.Sequential` certainly begins with; None when that is open.

    PyTorch runs what the constructor was given, and what `self` was given, in the order in which it came.
    """
    owners = (instance.cls, *ancestors(instance.cls))
    runs_itself = any(name in owner.body for owner in owners for name in ("forward", "__call__"))
    listed = [option for owner in owners if ITEMS in owner.fields for option in options(owner.fields[ITEMS])]
    if runs_itself or any(not isinstance(items, Seq) or items.count is None for items in listed):
        return None
    known = (instance.attributes or {}).items()
    for name, held in known:
        if name == ITEMS:
            return held.items[0] if isinstance(held, Seq) else None
        if any(name in owner.fields for owner in owners) and not isinstance(held, Const | Seq | Dict):
            return held
    return None


def child_named(container: Result, name: str) -> Value | None:
    """The module that a container was built with under a name: PyTorch makes it an attribute of that name."""
    match container.call.args:
        case [Dict(items), *_]:
            return items.get(name)
    return None


def _elements_of(value: Value) -> list[Value]:
    """The elements of what a container is built from, one that stands for all when nothing is known of them."""
    known = _items(value)
    return [Element(value, value.node)] if known == [value] else known


def _is_dict(given: list[Value]) -> bool:
    return len(given) == 1 and all(isinstance(option, Dict) for option in options(given[0]))


def _items(value: Value) -> list[Value]:
    """The elements of a display, of each alternative; ``value`` itself when it is none."""
    found: list[Value] = []
    for option in options(value):
        match option:
            case Seq(_, items):
                found += items
            case Dict(items):
                found += items.values()
            case _ if is_module_list(option) and option is not value:
                found += held_by(option)
            case _:
                found.append(option)
    return found


def elements(value: Value) -> list[Value]:
    """What ``*value`` is known to give."""
    found: list[Value] = []
    for option in options(value):
        match option:
            case Seq(_, items):
                found += items
            case _ if container_kind(option):
                found += held_by(option)
            case Result(call) if call.name in _SAME_ELEMENTS and call.args:
                found += elements(call.args[0])
            case Result(call) if call.method == "children":
                # What a library built has children that nothing shows: the call stands for them.
                found += children_of(call.receiver) or [option]
            case Element(of=Attr()) if is_slice(option) and value not in found:
                # Neither has the slice of one of its parts; which of several models it is stays open.
                found.append(value)
    return found


def is_slice(value: Value) -> bool:
    """Whether ``value`` is written as a slice of something: `model.layer3[1:]`."""
    return isinstance(value.node, ast.Subscript) and isinstance(value.node.slice, ast.Slice)


def is_list_of_children(value: Value) -> bool:
    """Whether ``value`` is `list(module.children())`."""
    match value:
        case Result(call) if call.name in _SAME_ELEMENTS:
            return bool(call.args) and is_list_of_children(call.args[0])
        case Result(call):
            return call.method == "children"
    return False


def another_list(value: Value) -> Value:
    """A slice or a copy, which may hold what its origin does; of a list another one, which grows by itself."""
    if not isinstance(value, Seq):
        return value
    made = Seq(value.kind, [*value.items], value.open, value.node, value.place)
    made.count, made.optional, made.repeats = value.count, [*value.optional], value.repeats
    return made


def together(items: list[Value], more: list[Value]) -> tuple[list[Value], bool]:
    """``items`` and ``more``, and whether that is all of them: of too many, each value is kept once.

    Lists that are added to each other again and again grow with every statement by what they hold already.
    """
    if len(items) + len(more) <= MAX_ITEMS:
        return [*items, *more], True
    return list({id(value): value for value in (*items, *more)}.values()), False


def length_of(value: Value) -> int | None:
    """How many elements ``value`` was made with; None where the file does not decide it."""
    match value:
        case Seq(_, items):
            return value.count if value.open or value.optional else len(items)
        case Dict(items):
            return value.count if value.open else len(items)
        case Const(str(text)):
            return len(text)
        case Result(call) if call.name in _SAME_ELEMENTS or call.name == "builtins.enumerate":
            return length_of(call.args[0]) if call.args else None
        case Result(call) if call.name in _COUNTS:
            return None if call.open_args else _COUNTS[call.name](call)
        case Result(call) if container_kind(value) == "Sequential" and not _is_dict(call.args):
            return None if call.spread_count is None else len(call.args) + call.spread_count
        case Result(call) if is_module_list(value) and len(call.args) == 1:
            return length_of(call.args[0])
        case Result(call) if call.method in _ENTRIES and container_kind(call.receiver) == "ModuleDict":
            return length_of(call.receiver)
    return None


def _shortest(call: Call) -> int | None:
    """How often `zip` gives something, which ends with the shortest, and `pairwise`, which begins with two."""
    lengths = [length_of(given) for given in call.args]
    known = [length for length in lengths if length is not None]
    takes_turns = len({id(given) for given in call.args}) < len(call.args) or any(map(_is_iterator, call.args))
    if takes_turns or not known or len(known) < len(lengths):
        return None
    return min(known) if call.name == _ZIP else max(0, known[0] - 1)


def _is_iterator(value: Value) -> bool:
    """Whether ``value`` gives each element once, whoever takes it."""
    return isinstance(value.node, ast.GeneratorExp) or (
        isinstance(value, Result) and value.call.name == "builtins.iter"
    )


def total_length(parts: Iterable[Value]) -> int | None:
    """How many elements ``parts`` hold in all; None where the file does not decide it.

    Nor of those with an element for what is never made: `[Block() for _ in range(0)]`.
    """
    known = [(length_of(part), part) for part in parts]
    counted = [length for length, part in known if length or (length == 0 and not elements(part))]
    return sum(counted) if len(counted) == len(known) else None


def repeated_length(value: Value, times: Value) -> int | None:
    """How long ``value * times`` is, a list; None where the file does not decide it."""
    length, number = length_of(value), number_of(times)
    return None if length is None or number is None else length * max(number, 0)


def number_of(value: Value) -> int | None:
    """The whole number that ``value`` is; None for anything else."""
    return value.value if isinstance(value, Const) and type(value.value) is int else None


def _length_of_range(call: Call) -> int | None:
    bounds = [number for number in map(number_of, call.args) if number is not None]
    known = len(bounds) == len(call.args) in (1, 2, 3) and bounds[2:] != [0]
    return len(range(*bounds)) if known else None


#: Functions that make something to loop over, and how many elements it has.
_COUNTS: dict[str, Callable[[Call], int | None]] = {
    "builtins.range": _length_of_range,
    _ZIP: _shortest,
    "itertools.pairwise": _shortest,
    "itertools.chain": lambda call: total_length(call.args),
    "itertools.repeat": lambda call: number_of(call.argument(1, "times")),
    "numpy.linspace": lambda call: number_of(call.argument(2, "num")),
    "torch.linspace": lambda call: number_of(call.argument(2, "steps")),
}


def fill(held: Result, added: list[Value], node: ast.AST, count: int | None) -> None:
    """``modules.append(block)``: what the container was built with is not all of it; ``count`` modules come in all."""
    built = held.call
    if built.name.endswith("Sequential"):
        _fill_sequential(built, added, count)
        return
    before = length_of(held) if built.args else 0
    first = built.args[0] if built.args else Seq("list", [], False, node)
    if isinstance(first, Dict):
        held.attributes = {**first.items, **(held.attributes or {})}
    items = (
        first.items if isinstance(first, Seq) else list(first.items.values()) if isinstance(first, Dict) else [first]
    )
    grown = Seq("list", [*items, *added], True, node)
    grown.count = None if before is None or count is None else before + count
    built.args = [grown]


def _fill_sequential(built: Call, added: list[Value], count: int | None) -> None:
    in_all = None if count is None or built.spread_count is None else built.spread_count + count
    if built.spread or (not built.args and (built.open_args or count is None)):
        # Which module comes first is open.
        built.spread, built.spread_count = [*built.spread, *added], in_all
    else:
        built.args, built.spread_count = [*built.args, *added], None if in_all is None else in_all - len(added)
    built.open_args = True


def read(held: Dict, key: str) -> Value:
    """What ``held[key]`` gives: where a comprehension made all entries, `{k: v.to(device) for ...}`, they are alike."""
    alike = isinstance(held.node, ast.DictComp) and held.items.keys() == {GAP}
    return held.items[GAP] if alike else held.get(key)


def matching_field(fields: dict[str, Value], name: str) -> Value | None:
    """The field that ``name`` may be where of it, or of names that some were written by, parts are known."""
    patterns = [pattern for pattern in fields if GAP in pattern]
    found = [fields[pattern] for pattern in patterns if fits(pattern, name)]
    if GAP in name:
        found += [held for field, held in fields.items() if _is_numbered(name, field)]
    return join(*found) if found else None


def _is_numbered(name: str, field: str) -> bool:
    """Whether ``field`` is ``name`` with numbers for what is not known of it: `layer1` of `layer{}`."""
    known = [re.escape(part) for part in name.split(GAP)]
    return re.fullmatch(r"\d+".join(known), field) is not None


def fits(pattern: str, name: str) -> bool:
    """Whether ``name`` may come from a ``Template`` of this pattern."""
    known = [re.escape(part) for part in pattern.split(GAP)]
    return re.fullmatch(".*".join(known), name) is not None


def text_of(value: Value) -> str | None:
    """The string that ``value`` is, with ``{}`` for what is not known of it; None for anything else."""
    match value:
        case Const(str(text)):
            return text
        case Template(pattern):
            return pattern
    return None


def iterate(value: Value, node: ast.AST | None) -> Value:
    """What a loop over ``value`` binds in each iteration."""
    match value:
        case Seq(_, items):
            return _one_of(items, value, node)
        case Choice():
            return each(value, lambda option: iterate(option, node))
        case Result():
            return _iterate_result(value, node)
        case Element(of=Result(call) as whole) if is_slice(value) and call.name in _SAME_ELEMENTS:
            return iterate(whole, node)
        case Instance() if container_kind(value):
            return _one_of(held_by(value), value, node)
        case Dict() | Const() | Unknown():
            return Unknown(node)
    return Element(value, node)


def _iterate_result(value: Result, node: ast.AST | None) -> Value:
    call = value.call
    if call.name == "builtins.enumerate" and call.args:
        return Seq("tuple", [Unknown(node), iterate(call.args[0], node)], False, node)
    if call.name == _ZIP:
        return Seq("tuple", [iterate(argument, node) for argument in call.args], call.open_args, node)
    if call.name in _SAME_ELEMENTS and call.args:
        return iterate(call.args[0], node)
    if call.name == "itertools.chain" and (call.spread or (call.args and not call.open_args)):
        return join(*(iterate(argument, node) for argument in (*call.args, *call.spread)))
    if call.name == "itertools.chain.from_iterable" and call.args:
        return iterate(iterate(call.args[0], node), node)
    if call.name == "builtins.range":
        return Unknown(node)
    if is_module_list(value):
        return Unknown(node) if call.name.endswith("ModuleDict") else _one_of(given_to(call), value, node)
    return _iterate_children(value, node)


def _iterate_children(value: Result, node: ast.AST | None) -> Value:
    """An iteration through ``module.children()``, ``modules.values()`` and their like with names."""
    call = value.call
    held = children_of(_module_behind(call.receiver)) if call.method in _CHILDREN | _NAMED_CHILDREN else []
    if not held:
        return Element(value, node)
    child = _one_of(held, call.receiver, node)
    return child if call.method in _CHILDREN else Seq("tuple", [Unknown(node), child], False, node)


def parts_passed(element: Element) -> list[tuple[Value, tuple[Guard, ...]]]:
    """Each module of a container of more kinds than are told apart, of which a loop passes ``element``."""
    if isinstance(element.node, ast.Subscript):
        return []
    of = _module_behind(element.of)
    return [found for part in elements(of) or children_of(of) for found in conditional_options(part)]


def _module_behind(value: Value) -> Value:
    """The module whose ``_modules`` this is."""
    return value.base if isinstance(value, Attr) and value.name == "_modules" else value


def _one_of(items: list[Value], container: Value, node: ast.AST | None) -> Value:
    found = join(*items) if items else Element(container, node)
    return Element(container, node) if isinstance(found, Unknown) else found


def each(value: Choice, found: Callable[[Value], Value]) -> Value:
    """What is ``found`` in each alternative, under its conditions; None has no attributes and elements."""
    kept = [(option, under) for option, under in conditional_options(value) if not is_none(option)]
    return join_under(*((found(option), under) for option, under in kept))


def is_none(value: Value) -> bool:
    """Whether ``value`` is the literal None."""
    return isinstance(value, Const) and value.value is None
