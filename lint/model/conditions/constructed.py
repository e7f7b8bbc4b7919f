"""What conditions come out as by what the constructors of the program store, and its calls pass on.

`if not self.training or self.drop_prob == 0.0: return x` is decided where every object of the class is built with
`0.1`, and nothing but the constructor sets the attribute.
"""

from __future__ import annotations

import ast
import operator
from functools import lru_cache
from typing import TYPE_CHECKING

from ...facts.composed import composed
from ...facts.nodes import all_nodes, extent, is_inside
from ...facts.objects.classes import ancestors
from ...facts.origin import origin
from ...facts.parameters import defaults, parameter_names, positional_names
from ...facts.values import Absent, Class, Const, Function, Instance, Method, options
from .ramps import last_of_ramp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ...facts.values import Call, Value
    from ..history import History

#: Through how many calls a parameter is followed.
_HOPS = 4
#: What one of several objects may hold.
_MAX_VALUES = 16
_COMPARES: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


def comes_out_as(run: History, test: ast.AST) -> bool | None:
    """What the condition ``test`` of a function comes out as in train mode, for every object and call; else None."""
    function = function_around(run, test)
    return None if function is None else composed(test, lambda part: _truth(run, part, function))


def _truth(run: History, test: ast.AST, function: Function) -> bool | None:
    match test:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARES:
            lefts, rights = _values(run, left, function, _HOPS), _values(run, right, function, _HOPS)
            return _only(_compared(op, one, other) for one in lefts for other in rights)
        case ast.Name() | ast.Attribute():
            return _only(bool(value.value) for value in _values(run, test, function, _HOPS))
    return None


def _compared(op: ast.cmpop, left: Const, right: Const) -> bool | None:
    if isinstance(op, ast.Is | ast.IsNot) and left.value is not None and right.value is not None:
        return None
    try:
        return _COMPARES[type(op)](left.value, right.value)
    except TypeError:
        return None


def _only(answers: Iterator[bool | None]) -> bool | None:
    """The one answer that all of them are; None where there is none, or another one."""
    found = set(answers)
    return found.pop() if len(found) == 1 else None


def _values(run: History, node: ast.AST, function: Function, hops: int) -> list[Const]:
    """The constants that an expression of ``function`` may be; none where it may be something else."""
    match node:
        case ast.Constant(value=value):
            return [Const(value, node)]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return [Const(-number, node)]
        case ast.Attribute(value=ast.Name(id="self"), attr="training"):
            return [Const(True, node)]
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if function.owner is not None:
            return _stored(run, function.owner, name)
        case ast.Name(id=name) if hops and name in parameter_names(function.node):
            return _passed(run, name, function, hops)
    return []


def _passed(run: History, name: str, function: Function, hops: int) -> list[Const]:
    """What the calls of ``function`` give for its parameter ``name``, which it does not change."""
    if name in _names_stored(function.node):
        return []
    found: list[Const] = []
    for call in _constructions(run, function):
        values = _constants(_argument(call, name, function))
        if not values:
            return []
        found += values
    for call in run.calls_of(function):
        given, caller = _given(call, name, function), call.place.function
        if given is None:
            return []
        values = _values(run, given, caller or function, hops - 1) if caller or isinstance(given, ast.Constant) else []
        if not values:
            return []
        found += values
    return found if len(found) <= _MAX_VALUES else []


@lru_cache(maxsize=64)
def _names_stored(node: ast.AST) -> frozenset[str]:
    """The names that something in ``node`` binds or deletes."""
    names = (part for part in all_nodes(node) if isinstance(part, ast.Name))
    return frozenset(part.id for part in names if not isinstance(part.ctx, ast.Load))


def _constructions(run: History, function: Function) -> list[Call]:
    """The calls that come to ``function`` because it is the constructor of their class."""
    if function.name != "__init__" or function.owner is None:
        return []
    calls = run.program.calls
    return [it for it in calls if isinstance(it.func, Class) and it.func.body.get("__init__") is function]


def _argument(call: Call, name: str, function: Function) -> Value:
    """What a call of a class gives for a parameter of its constructor."""
    positional = positional_names(function.node)
    given = call.argument(positional.index(name) - 1 if name in positional else None, name)
    default = defaults(function.node).get(name)
    is_left_out = isinstance(given, Absent) and isinstance(default, ast.Constant)
    return Const(default.value, default) if is_left_out and isinstance(default, ast.Constant) else given


def _constants(value: Value) -> list[Const]:
    """The constants that ``value`` may be, of a rising sequence the last; none where it may be something else."""
    found = [last_of_ramp(option) or option for option in options(value)]
    constants = [option for option in found if isinstance(option, Const)]
    return constants if len(constants) == len(found) else []


def _given(call: Call, name: str, function: Function) -> ast.expr | None:
    """The expression that ``call`` gives for a parameter, or the default that is a constant."""
    node = call.node
    unpacks = any(isinstance(given, ast.Starred) for given in node.args) or any(it.arg is None for it in node.keywords)
    if unpacks or call.via:
        return None
    written = call.written_arguments(positional_names(function.node)[isinstance(call.func, Method) :])
    default = defaults(function.node).get(name)
    return written.get(name) or (default if isinstance(default, ast.Constant) else None)


def _stored(run: History, owner: Class, name: str) -> list[Const]:
    """What the objects of ``owner``, or of a class derived from it, hold as ``name`` from their constructors on."""
    elsewhere = _stored_elsewhere(run)
    if elsewhere is None or name in elsewhere:
        return []
    calls = run.program.calls
    built = [(call, call.func) for call in calls if isinstance(call.func, Class) and _is_of(call.func, owner)]
    found: list[Value] = []
    for call, cls in built:
        writes = [it for it in run.writes if it.field == name and _is_object_of(it.obj, call)]
        if not writes or any(write.augmented for write in writes):
            return []
        # A constructor that stores it in one case alone leaves what the class says in the others.
        said = (base.body[name] for base in (cls, *ancestors(cls)) if name in base.body)
        found += [option for value in (*(write.value for write in writes), *said) for option in options(value)]
    constants = [it for value in found for it in _constants(value) if _is_fixed(run, it, owner, name)]
    return constants if len(constants) == len(found) else []


def _is_of(cls: Class, owner: Class) -> bool:
    return cls is owner or owner in ancestors(cls)


def _is_object_of(value: Value, call: Call) -> bool:
    """Whether ``value`` is the object that this evaluation of ``call`` builds."""
    return isinstance(value, Instance) and value.call is call


def _is_fixed(run: History, value: Const, owner: Class, name: str) -> bool:
    """Whether what a constructor stores is no switch: those have somebody who sets them, but in a whole script."""
    if value.value is not None and not isinstance(value.value, bool):
        return True
    script = run.program.script
    return script is not None and script.settles(owner.instance, name)


@lru_cache(maxsize=1)
def _stored_elsewhere(run: History) -> frozenset[str] | None:
    """The attributes that something other than the constructor of the object sets; None when it may set any."""
    by_name = (call.argument(1) for call in run.calls_to("builtins.setattr"))
    if any(not isinstance(name, Const) for name in by_name):
        return None
    found: set[str] = set()
    for write in run.writes:
        function = write.place.function
        is_own = function is not None and function.name == "__init__" and isinstance(write.obj, Instance)
        if not is_own or write.statement is None:
            found.add(write.field)
    for tree in run.program.trees:
        found.update(_set_by_hand(tree))
    return frozenset(found)


def _set_by_hand(tree: ast.AST) -> Iterator[str]:
    """The attributes that are stored in ``tree`` outside of a constructor, or as those of another object."""
    own: set[ast.AST] = set()
    for node in all_nodes(tree):
        match node:
            case ast.FunctionDef(name="__init__"):
                own.update(part for part in all_nodes(node) if _is_own_store(part))
    for node in all_nodes(tree):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and node not in own:
            yield node.attr


def _is_own_store(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store()):
            return True
    return False


def function_around(run: History, node: ast.AST) -> Function | None:
    """The innermost function of the program that ``node`` stands in."""
    functions = (it for it in run.program.functions.values() if not it.is_lambda and origin(it.node) == origin(node))
    return min((it for it in functions if is_inside(node, it.node)), key=lambda it: extent(it.node), default=None)
