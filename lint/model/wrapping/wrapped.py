"""The classes and the lists of modules of the file that torch's checkpoint wrappers go around."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes
from ...facts.objects.containers import held_by
from ...facts.values import ABSENT, Class, Function, Instance, Partial, Result, options, same
from ..events import ApplyCheckpointing, BlockWrapping
from ..names import canonical
from ..regions.bodies import classes_checked
from ..types import unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Value
    from ...facts.walk import Write
    from ..events import CheckpointWrap, WrapperCheckpointing
    from ..history import History

_WRAPPER = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.checkpoint_wrapper"
#: Modules whose parts have numbers as names.
_LISTS = frozenset(("torch.nn.ModuleList", "torch.nn.Sequential"))


def wrapped_classes(run: History, event: WrapperCheckpointing) -> list[Class]:
    """The classes that the check of ``event`` accepts, or those of the module that it wraps."""
    if isinstance(event, BlockWrapping):
        return [cls for cls in classes_checked(event.check, run.bodies) if isinstance(cls, Class)]
    return [option.cls for option in options(unwrapped(event.module)) if isinstance(option, Instance)]


def wrapper_argument(run: History, event: WrapperCheckpointing, name: str) -> Value:
    """What the wrapper of ``event`` is given for its argument ``name``; ABSENT when it is not given, or not shown."""
    if not isinstance(event, BlockWrapping):
        return event.call.keyword(name)
    match event.wrapper if isinstance(event, ApplyCheckpointing) else ABSENT:
        case Partial() as wrapper:
            return wrapper.kwargs.get(name, ABSENT)
        case Function() as function:
            calls = [call for call in run.bodies.calls_in(function) if canonical(call.name) == _WRAPPER]
            return calls[0].keyword(name) if len(calls) == 1 and not calls[0].place.guards else ABSENT
    return ABSENT


def lists_of_wrapped(run: History, wrap: CheckpointWrap) -> Iterator[Write]:
    """Where an attribute gets a list of modules, each wrapped by ``wrap``, that nothing changes later."""
    for write in run.writes:
        held = write.value
        if isinstance(held, Result) and not write.is_item and _holds_wrapped(held, wrap):
            again = (other for other in run.writes if other.order > write.order and other.field == write.field)
            replaced = any(same(other.obj, write.obj) and other.node is not write.node for other in again)
            added = any(
                same(call.receiver, held) and not all(_is_wrapped(given, wrap) for given in call.args)
                for call in run.method_calls("append", "extend", "insert")
            )
            if not replaced and not added and write.field not in _stored_into(run.program.trees):
                yield write


def list_filled_with(run: History, wrap: CheckpointWrap) -> str | None:
    """The attribute with the list whose elements a loop replaces, each by what ``wrap`` makes of it; None for others.

    The call stands under no condition, neither in the loop nor around it.
    """
    loop = wrap.place.loops[-1] if len(wrap.place.loops) == 1 else None
    field = _list_gone_through(loop.iter) if isinstance(loop, ast.For) else None
    if not isinstance(loop, ast.For) or field is None or wrap.place.guards:
        return None
    for position, statement in enumerate(loop.body):
        if any(part is wrap.node for part in ast.walk(statement)):
            stored = _name_of(statement, wrap.node)
            targets = loop.body[position : position + 2] if stored else loop.body[position : position + 1]
            return field if any(_puts_into(part, field, wrap.node, stored) for part in targets) else None
    return None


def _list_gone_through(iterated: ast.expr) -> str | None:
    """`blocks` of a loop over `model.blocks`, `enumerate(model.blocks)`, `range(len(model.blocks))` and the like."""
    match iterated:
        case ast.Attribute(attr=field):
            return field
        case ast.Call(func=ast.Name(id="enumerate" | "range" | "len" | "list"), args=[inner]):
            return _list_gone_through(inner)
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=field), attr="named_children" | "items"), args=[]):
            return field
    return None


def _name_of(statement: ast.stmt, node: ast.AST) -> str:
    """The variable that ``statement`` binds to ``node``; empty when it does something else."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is node:
            return name
    return ""


def _puts_into(statement: ast.stmt, field: str, node: ast.AST, name: str) -> bool:
    """Whether ``statement`` puts ``node``, or the variable ``name``, into the list ``field``."""
    match statement:
        case ast.Assign(targets=[ast.Subscript(value=ast.Attribute(attr=to))], value=value):
            pass
        case ast.Expr(
            ast.Call(
                func=ast.Attribute(value=ast.Attribute(attr=to), attr="register_module" | "add_module"),
                args=[_, value],
            )
        ):
            pass
        case ast.Expr(ast.Call(func=ast.Name(id="setattr"), args=[ast.Attribute(attr=to), _, value])):
            pass
        case _:
            return False
    return to == field and (value is node or (bool(name) and isinstance(value, ast.Name) and value.id == name))


def _holds_wrapped(made: Result, wrap: CheckpointWrap) -> bool:
    """Whether ``made`` is a list of modules, each of them made by ``wrap``, in a comprehension or in a loop."""
    held = held_by(made)
    is_list = canonical(made.call.name) in _LISTS and bool(held)
    return is_list and all(_is_wrapped(option, wrap) for value in held for option in options(value))


def _is_wrapped(value: Value, wrap: CheckpointWrap) -> bool:
    return isinstance(value, Result) and value.call is wrap.call


@lru_cache(maxsize=4)
def _stored_into(trees: tuple[ast.AST, ...]) -> frozenset[str]:
    """The names of attributes that a program puts something into: `self.blocks[0] = plain`."""
    stored = set[str]()
    for node in (node for tree in trees for node in all_nodes(tree)):
        match node:
            case ast.Subscript(value=ast.Attribute(attr=name), ctx=ast.Store() | ast.Del()):
                stored.add(name)
    return frozenset(stored)
