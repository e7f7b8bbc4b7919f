"""Hooks that a program registers on its modules: each call of the module runs them, in a recomputation too."""

from __future__ import annotations

import ast
from copy import deepcopy
from typing import TYPE_CHECKING, NamedTuple

from ...facts.nodes import is_inside
from ...facts.objects.attributes import get_attribute
from ...facts.objects.classes import ancestors
from ...facts.parameters import positional_names
from ...facts.values import Class, Function, Instance, Method, Param, Result, Value, options, same
from ..conditions.guards import own_guards
from ..frozen.module_loops import loop_around, loop_over_modules
from ..frozen.named_modules import passing_in_loop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...facts.values import Call, Guard
    from ...facts.walk import Program

_REGISTER = ("register_forward_hook", "register_forward_pre_hook")


class Registration(NamedTuple):
    """A call that registers a hook which stays in training."""

    call: Call
    #: The modules that it is registered on.
    modules: tuple[Value, ...]
    #: The conditions under which that is done, but for those that choose modules.
    guards: tuple[Guard, ...]

    @property
    def hook(self) -> Value:
        """What is registered."""
        return self.call.argument(0, "hook")


def registered_in(program: Program) -> list[Registration]:
    """What registers hooks that stay in training; nothing in a program that removes some that are not known."""
    removals = [call for call in program.calls if call.method == "remove" and not call.args]
    if any(
        not isinstance(removal.receiver, Result) or not _gives_handle(removal.receiver.call) for removal in removals
    ):
        return []
    backwards = [call for call in program.calls if call.method == "backward"]
    return [
        _registration(program, call)
        for call in program.calls
        if call.method in _REGISTER and not any(_removes(removal, call, backwards) for removal in removals)
    ]


def _registration(program: Program, call: Call) -> Registration:
    modules, guards = options(call.receiver), tuple(own_guards(call.place))
    over_modules, loop = loop_over_modules(call.receiver), loop_around(call.place)
    if over_modules is None or loop is None or over_modules.field:
        return Registration(call, tuple(modules), guards)
    chosen = passing_in_loop(program, call.place, over_modules)
    return Registration(call, tuple(chosen), tuple(guard for guard in guards if not is_inside(guard.test, loop)))


def _removes(removal: Call, registration: Call, backwards: list[Call]) -> bool:
    """Whether ``removal`` may come before a backward pass; a function that nothing calls is for when all is done."""
    if not isinstance(removal.receiver, Result) or removal.receiver.call.node is not registration.node:
        return False
    if removal.place.walk not in (0, registration.place.walk):
        return False
    return not any(
        registration.order < backward.order < removal.order and backward.place.walk == removal.place.walk
        for backward in backwards
    )


def _gives_handle(call: Call) -> bool:
    """Whether it registers a hook of any kind: a backward hook's handle removes no forward hook."""
    return call.method.startswith("register_")


def hooks_on(registered: Iterable[Registration], module: Value) -> Iterator[Registration]:
    """Those of ``registered`` whose hook is on ``module``."""
    return (found for found in registered if any(_is_on(option, module) for option in found.modules))


def runs_beside(registered: Iterable[Registration], function: Function, modules: Iterable[Value]) -> bool:
    """Whether ``function`` is a hook on something else than ``modules`` as well."""
    inside = list(modules)
    on = [it for found in registered if function.node in _nodes_of(found) for it in found.modules]
    return not all(any(_is_on(it, module) for module in inside) for it in on)


def _nodes_of(registration: Registration) -> Iterator[ast.AST]:
    for option in options(registration.hook):
        match _run_by(option):
            case Method(_, Function(node)) | Function(node):
                yield node


def _is_on(receiver: Value, module: Value) -> bool:
    match receiver, module:
        case Instance(cls), Instance(other):
            return cls is other or cls in ancestors(other)
        case Result(), Result():
            return same(receiver, module)
    return False


def is_output_in_hook(registered: Iterable[Registration], value: Value) -> bool:
    """Whether ``value`` is what a module gave, as a hook gets it that runs then: its third argument."""
    return isinstance(value, Param) and output_of(registered, value.function) == value.name


def output_of(registered: Iterable[Registration], function: Function) -> str | None:
    """The parameter in which ``function``, a hook, gets what the module gave; None where it is no such hook."""
    nodes = {node for found in registered for node in _nodes_of(found)}
    names = positional_names(function.node)[1 if function.owner is not None else 0 :]
    return names[2] if function.node in nodes and len(names) == 3 else None


def as_methods(hook: Value, owner: Class) -> Iterator[ast.FunctionDef]:
    """The bodies of ``hook`` as methods of the module that it is on, an object of ``owner``, which is `self` there."""
    for option in options(hook):
        match _run_by(option):
            case Function(ast.FunctionDef() as node):
                yield _renamed(node, 0, None)
            case Method(Instance(cls), Function(ast.FunctionDef() as node)):
                is_own = cls is owner or cls in ancestors(owner) or owner in ancestors(cls)
                yield _renamed(node, 1, "self" if is_own else "_")


def _run_by(hook: Value) -> Value:
    """What calling ``hook`` runs: the `__call__` of an object that is one."""
    return get_attribute(hook, "__call__", hook.node) if isinstance(hook, Instance) else hook


def _renamed(node: ast.FunctionDef, position: int, holder: str | None) -> ast.FunctionDef:
    """``node`` where the parameter at ``position``, the module, is called `self`, and the one before it ``holder``."""
    parameters = [it.arg for it in (*node.args.posonlyargs, *node.args.args)]
    names = dict(zip(parameters, [holder, "self"] if position else ["self"], strict=False))
    copied = deepcopy(node)
    for part in ast.walk(copied):
        match part:
            case ast.Name(id=name) if new := names.get(name):
                part.id = new
            case ast.arg(arg=name) if new := names.get(name):
                part.arg = new
    return copied
