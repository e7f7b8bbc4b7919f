"""What objects of a class hold beside parameters and change in a forward pass: buffers and counters."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.objects.classes import ancestors
from ...facts.values import Absent, Const, Instance
from .own_attributes import own_place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Class
    from ..history import History
    from ..run import Run

#: Methods that make a list longer or shorter.
CONTAINER_CHANGES = frozenset(("append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft"))
#: Methods that write the state of a model to disk, or give it.
SAVING = ("state_dict", "save_pretrained", "save_model", "save_state", "save_checkpoint")


def state_of(run: Run, owner: Class) -> dict[str, str]:
    """The state of the objects of ``owner``: `buffer` or `counter` by its name."""
    held = dict.fromkeys(_containers(owner), "attribute") | dict.fromkeys(_counters(owner), "counter")
    return held | dict.fromkeys(registered_buffers(run, owner), "buffer")


def registered_buffers(run: History, owner: Class) -> dict[str, Call]:
    """The names that the class, or one of the file that it derives from, registers as buffers, and where."""
    classes = (owner, *ancestors(owner))
    found = {}
    for call in run.method_calls("register_buffer"):
        match call.receiver, call.argument(0, "name"):
            case Instance(cls), Const(str(name)) if cls in classes:
                found[name] = call
    return found


def saved_state(run: Run, owner: Class) -> frozenset[str]:
    """The names of the buffers that `state_dict()` gives."""
    calls = registered_buffers(run, owner).items()
    return frozenset(name for name, call in calls if isinstance(call.argument(2, "persistent"), Absent))


def _containers(owner: Class) -> Iterator[str]:
    """The attributes that the class, or one of the file that it derives from, makes a list of its own."""
    for cls in (owner, *ancestors(owner)):
        for node in ast.walk(cls.node):
            match node:
                case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value):
                    if _is_list(value):
                        yield name


def _is_list(value: ast.expr) -> bool:
    match value:
        case ast.List(elts=[]):
            return True
        case ast.Call(func=ast.Name(id=made) | ast.Attribute(attr=made)):
            return made == "deque" or (made == "list" and not value.args)
    return False


def _counters(owner: Class) -> Iterator[str]:
    """The attributes that the class, or one of the file that it derives from, counts or ramps with.

    `self.calls += 1`, `self.temperature = max(self.lowest, self.temperature * self.decay)`.
    """
    for cls in (owner, *ancestors(owner)):
        for node in ast.walk(cls.node):
            match node:
                case ast.AugAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name), value=change):
                    if _is_of_numbers(change):
                        yield name
                case ast.AugAssign(target=target, value=change) if place := own_place(target):
                    if _is_of_numbers(change) and not _is_made_anew(cls, target):
                        yield place
                case ast.Assign(targets=[ast.Subscript() | ast.Attribute() as target], value=ast.BinOp() as value) if (
                    place := own_place(target)
                ):
                    sides = ((value.left, value.right), (value.right, value.left))
                    steps = any(own_place(side) == place and _is_of_numbers(other) for side, other in sides)
                    if steps and not _is_made_anew(cls, target):
                        yield place
                case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value):
                    if _steps_on(value, name) and _is_of_numbers(value):
                        yield name


def _is_made_anew(cls: Class, target: ast.expr) -> bool:
    """Whether a method sets the object that ``target`` is a part of, calls it or hands it on: that may reset it."""
    held = target.value if isinstance(target, ast.Subscript | ast.Attribute) else target
    written = ast.unparse(held)
    methods = [it for it in cls.node.body if isinstance(it, ast.FunctionDef) and it.name != "__init__"]
    nodes = [node for method in methods for node in ast.walk(method)]
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    inside = {id(it.value) for it in nodes if isinstance(it, ast.Subscript | ast.Attribute) and id(it) not in called}
    named = (node for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node) == written)
    return any(id(node) not in inside for node in named)


def global_counters(function: ast.AST) -> Iterator[str]:
    """The variables of the module that ``function`` counts with, each as `global NAME`."""
    nodes = list(ast.walk(function))
    names = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    for node in nodes:
        match node:
            case ast.AugAssign(target=ast.Name(id=name), value=change) if name in names and _is_of_numbers(change):
                yield f"global {name}"


def _steps_on(value: ast.expr, name: str) -> bool:
    """Whether ``value`` is arithmetic with the attribute ``name`` of ``self``, as it is or within bounds."""
    match value:
        case ast.BinOp():
            return any(_is_own(part, name) for part in ast.walk(value))
        case ast.Call(func=ast.Name(id="min" | "max"), args=given, keywords=[]):
            return any(_steps_on(part, name) for part in given)
    return False


def _is_own(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=attribute):
            return attribute == name
    return False


def _is_of_numbers(value: ast.expr) -> bool:
    """Whether ``value`` is computed from numbers and attributes of ``self`` alone, as a schedule is."""
    match value:
        case ast.Constant(value=int() | float()) | ast.Attribute(value=ast.Name(id="self")):
            return True
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _is_of_numbers(operand)
        case ast.BinOp(left=left, right=right):
            return _is_of_numbers(left) and _is_of_numbers(right)
        case ast.Call(func=ast.Name(id="min" | "max"), args=given, keywords=[]):
            return all(map(_is_of_numbers, given))
    return False
