"""Switches of gradients in loops over the modules of a model: to which of them one comes by class and by name."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ...facts.nodes import is_inside
from ...facts.objects.classes import ancestors
from ...facts.values import UNKNOWN, Attr, Call, Class, Const, Element, Guard, Instance, Ref, Result, Seq, Test, Value
from ..conditions.guards import own_guards
from ..names import canonical
from ..texts.given_texts import meant_at
from ..texts.passing_names import name_passes
from ..types import bases

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...facts.values import Place
    from ...facts.walk import Program
    from ..texts.given_texts import Meant

_ALL, _DIRECT = ("modules", "named_modules"), ("children", "named_children")
_MODULE = "torch.nn.Module"
_SAME, _OTHER = ast.Is | ast.Eq | ast.In, ast.IsNot | ast.NotEq | ast.NotIn
#: Modules of torch of which no other one of its modules is a kind that scripts build.
_PLAIN = frozenset(
    f"torch.nn.{name}"
    for name in (
        *("Linear", "Embedding", "EmbeddingBag", "Conv1d", "Conv2d", "Conv3d", "LayerNorm", "GroupNorm", "RMSNorm"),
        *("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d"),
        *("MultiheadAttention", "LSTM", "GRU", "Dropout", "ModuleList", "ModuleDict"),
    )
)


class ModuleLoop(NamedTuple):
    """A loop over the modules of an object, and what it switches of each."""

    whole: Instance
    #: Whether it goes through what the object holds itself, and no deeper.
    is_direct: bool
    #: The one parameter that is switched; all of the module, with what it holds, where this is empty.
    field: str
    #: Whether a second loop goes through what each of these modules holds itself.
    is_nested: bool = False


class _Asked(NamedTuple):
    """What the conditions of a loop over modules are asked with."""

    program: Program
    loop: ast.For | ast.comprehension
    meant: Meant | None
    #: What the loop calls the module.
    variable: str


def loop_over_modules(switched: Value) -> ModuleLoop | None:
    """The loop that gave ``switched``, the module of a switch, if one went through the modules of an object."""
    field = ""
    if isinstance(switched, Attr) and isinstance(switched.base, Element):
        field, switched = switched.name, switched.base
    depth = 0
    while isinstance(switched, Element) and depth < 2:
        switched, depth = switched.of, depth + 1
    match switched:
        case Instance() if depth:  # `for name, child in model.named_children()`
            return ModuleLoop(switched, True, field)
        case Result(call) if depth and isinstance(call.receiver, Instance) and call.method in _ALL:
            return ModuleLoop(call.receiver, False, field)
        case Result(Call(method="children" | "named_children") as call) if depth:
            outer = loop_over_modules(call.receiver)
            is_whole = outer is not None and not (outer.is_direct or outer.field or outer.is_nested)
            return outer._replace(field=field, is_nested=True) if outer is not None and is_whole else None
    return None


def passes_in_loop(
    program: Program, place: Place, found: ModuleLoop, chain: Sequence[tuple[str, Value]]
) -> bool | None:
    """Whether a loop over modules comes to a module, by itself or with one that holds it; None where that is open.

    Args:
        program: The program that the loop is in.
        place: What is done to the modules is done there.
        found: The loop around it.
        chain: The names, and the modules, that lead to the module; it comes last.
    """
    loop, guards = loop_around(place), [*own_guards(place)]
    if loop is None or not all(is_inside(guard.test, loop) for guard in guards):
        return None
    asked = _Asked(program, loop, meant_at(program, place), _module_of(loop))
    visited = chain[:1] if found.is_direct else chain
    if found.is_nested:
        visited = [(name.rpartition(".")[2], part) for name, part in visited]
    answers = {_all_hold(asked, guards, name, part) for name, part in (visited[-1:] if found.field else visited)}
    if found.is_direct and found.field and len(chain) > 1:
        return False
    return True if True in answers else (None if None in answers else False)


def loop_around(place: Place) -> ast.For | ast.comprehension | None:
    """The one loop over modules around ``place``; that through the children of each of them, where there are two."""
    kinds = ast.For | ast.comprehension
    loops = [loop for loop in place.loops if isinstance(loop, kinds) and _methods_in(loop.iter)]
    return loops[-1] if 0 < len(loops) <= 2 and isinstance(loops[-1], kinds) else None


@lru_cache(maxsize=1)
def _calls_by_node(program: Program) -> dict[ast.AST, list[Call]]:
    found: dict[ast.AST, list[Call]] = {}
    for call in program.calls:
        found.setdefault(call.node, []).append(call)
    return found


def _methods_in(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=name), args=[], keywords=[]):
            return name in (*_ALL, *_DIRECT)
        case ast.Call(func=ast.Name("list" | "tuple"), args=[inner], keywords=[]):
            return _methods_in(inner)
    return False


def _all_hold(asked: _Asked, guards: Iterable[Guard], name: str, part: Value) -> bool | None:
    answers = {_answer(asked, guard, guard.test, name, part, guard.taken) for guard in guards}
    return False if False in answers else (None if None in answers else True)


def _answer(asked: _Asked, guard: Guard, test: ast.AST, name: str, part: Value, taken: bool) -> bool | None:
    """Whether ``test``, of ``guard``, comes out as ``taken`` for the module ``part``, called ``name``."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return _answer(asked, guard, inner, name, part, not taken)
        case ast.BoolOp(op=op, values=values):
            stops = isinstance(op, ast.And) is not taken
            answers = {_answer(asked, guard, value, name, part, taken) for value in values}
            return stops if stops in answers else (None if None in answers else not stops)
        case ast.Call(func=ast.Name("isinstance"), args=[ast.Name(id=variable), _]) if variable == _module_of(
            asked.loop
        ):
            classes = [call.argument(1) for call in _calls_by_node(asked.program).get(test, ())]
            is_one = is_of(part, classes[0]) if len(classes) == 1 else None
            return None if is_one is None else is_one is taken
        case ast.Compare(left=left, ops=[op], comparators=[_]) if what := _asked_of_class(left, asked.loop):
            other = _compared_with(guard.value, test)
            is_it = None if other is None or not isinstance(op, _SAME | _OTHER) else _is_exactly(part, other, what)
            return None if is_it is None else is_it is (taken is isinstance(op, _SAME))
    return name_passes(Guard(test, UNKNOWN, taken), asked.loop, name, asked.meant)


def _asked_of_class(node: ast.expr, loop: ast.For | ast.comprehension) -> str:
    """What of the class of the loop's module ``node`` is: `class` for `type(m)`, `name` for `type(m).__name__`."""
    match node:
        case ast.Attribute(value=inner, attr="__name__"):
            return "name" if _asked_of_class(inner, loop) == "class" else ""
        case ast.Call(func=ast.Name("type"), args=[ast.Name(id=name)], keywords=[]):
            pass
        case ast.Attribute(value=ast.Name(id=name), attr="__class__"):
            pass
        case _:
            return ""
    return "class" if name == _module_of(loop) else ""


def _compared_with(tested: Value, node: ast.AST) -> Value | None:
    """What the comparison ``node``, a part of a condition, has on its right."""
    if not isinstance(tested, Test):
        return None
    if tested.node is node:
        return tested.operands[1] if len(tested.operands) == 2 else None
    return next((found for part in tested.operands if (found := _compared_with(part, node)) is not None), None)


def _is_exactly(part: Value, other: Value, what: str) -> bool | None:
    """Whether the class of ``part``, or its name, is ``other``, or one of those that ``other`` holds."""
    if isinstance(other, Seq):
        answers = {_is_exactly(part, option, what) for option in other.items}
        return True if True in answers else (None if None in answers or other.open else False)
    match part, other:
        case Instance(cls), Const(str(text)) if what == "name":
            return cls.name == text
        case Result(call), Const(str(text)) if what == "name":
            built = canonical(call.name)
            return built.rpartition(".")[2] == text if built.startswith("torch.nn.") else None
        case Instance(cls), Class() if what == "class":
            return cls is other
        case Instance(), Ref() if what == "class":
            return False
        case Result(call), _ if what == "class":
            return _is_built_as(call, other)
    return None


def _module_of(loop: ast.For | ast.comprehension) -> str:
    match loop.target:
        case ast.Name(id=name) | ast.Tuple(elts=[_, ast.Name(id=name)]):
            return name
    return ""


def is_of(part: Value, classes: Value) -> bool | None:
    """Whether ``part`` is an object of one of ``classes``."""
    if isinstance(classes, Seq):
        answers = {is_of(part, cls) for cls in classes.items}
        return True if True in answers else (None if None in answers or classes.open else False)
    if isinstance(classes, Ref) and canonical(classes.name) == _MODULE:
        return True
    match part, classes:
        case Instance(cls), Class():
            return cls is classes or classes in ancestors(cls)
        case Instance(cls), Ref(name):
            own = set(bases(cls))
            return True if canonical(name) in own else (False if own <= {_MODULE, *_PLAIN} else None)
        case Result(call), _:
            return _is_built_as(call, classes)
    return None


def _is_built_as(call: Call, cls: Value) -> bool | None:
    """Whether what a call of torch builds is an object of ``cls``."""
    built = canonical(call.name)
    match cls:
        case Class():
            return False if built.startswith("torch.nn.") else None
        case Ref(name):
            asked = canonical(name)
            return True if built == asked else (False if {built, asked} <= _PLAIN else None)
    return None
