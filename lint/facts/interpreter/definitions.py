"""Functions and classes where they are defined, and names declared `global` or `nonlocal`."""

from __future__ import annotations

import ast
import contextlib
from typing import TYPE_CHECKING

from ..parameters import parameter_names
from ..scopes import Scope, bound_names
from ..values import Call, Class, Element, Function, Method, Ref, Value
from .context_managers import decorates
from .handing_on import wrapper_made

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..walk import Walk
    from .handing_on import Wrapper


def define_function(walk: Walk, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """`def`: the name means the function, or what its decorator makes of it."""
    function = Function(node, walk.scope, walk.place)
    mode = walk.program.grad.current
    with registering(walk):
        function.decorators = [walk.evaluate(decorator) for decorator in node.decorator_list]
    walk.program.grad.current = mode  # `@torch.set_grad_enabled(False)` switches it for the function alone.
    walk.program.define(function)
    walk.scope.bind(node.name, _decorated(walk, function))


def _decorated(walk: Walk, function: Function) -> Value:
    """What its name means: the function that a decorator of the file makes of it; else ``function`` itself."""
    written = _take_transparent(walk, function)
    for decorator, node in zip(function.decorators, written, strict=True):
        if not isinstance(decorator, Function | Method) or (isinstance(decorator, Method) and walk.scope.is_class):
            continue
        stands_for_it = not walk.scope.is_class or (isinstance(decorator, Function) and _hands_on(decorator))
        if stands_for_it and len(written) > 1:
            continue  # What the others make of that is not known.
        with registering(walk):
            made = _made_by(walk, decorator, node, function)
        function.is_bare = len(written) == 1 and (made is function or (isinstance(made, Function) and stands_for_it))
        if isinstance(made, Function) and stands_for_it:
            return made
        if isinstance(made, Function) and made is not function:
            function.around.append(made)
    return function


def _take_transparent(walk: Walk, function: Function) -> list[ast.expr]:
    """Take the decorators from ``function`` that hand everything on to it; the expressions of those that are left."""
    left: list[tuple[Value, ast.expr]] = []
    for decorator, node in zip(function.decorators, getattr(function.node, "decorator_list", []), strict=True):
        wrapper = wrapper_made(decorator) if isinstance(decorator, Function) else None
        contexts = _contexts_around(walk, decorator, wrapper) if isinstance(decorator, Function) and wrapper else []
        if contexts:
            left += [(context, node) for context in contexts]
            continue
        if wrapper is None or wrapper.contexts or (wrapper.does_more and not walk.scope.is_class):
            left.append((decorator, node))
            continue
        if wrapper.does_more and isinstance(decorator, Function):
            with registering(walk):
                made = _made_by(walk, decorator, node, function)
            function.around += [made] if isinstance(made, Function) else []
    function.decorators = [decorator for decorator, _ in left]
    return [node for _, node in left]


def _contexts_around(walk: Walk, decorator: Function, wrapper: Wrapper) -> list[Value]:
    """The contexts of torch in which a decorator runs a function: as if each of them decorated it."""
    own = {*parameter_names(decorator.node), *bound_names(decorator.node), *parameter_names(wrapper.node)}
    read = {part.id for written in wrapper.contexts for part in ast.walk(written) if isinstance(part, ast.Name)}
    if own & read:
        return []
    scope, walk.scope = walk.scope, decorator.scope
    found = [walk.evaluate(written) for written in wrapper.contexts]
    walk.scope = scope
    return found if all(map(decorates, found)) else []


def _made_by(walk: Walk, decorator: Function | Method, written: ast.expr, defined: Function | Class) -> Value:
    """What ``decorator``, which ``written`` names, makes of ``defined``."""
    call = Call(ast.copy_location(ast.Call(written, [], []), written), decorator, walk.place, walk.program.next_order())
    call.args = [defined]
    if isinstance(decorator, Method):
        return walk.follow(decorator.function, call, decorator.receiver)
    return walk.follow(decorator, call, None)


def _hands_on(decorator: Function) -> bool:
    """Whether what ``decorator`` makes of a function gives it to a checkpoint, say, or never calls it itself."""
    parameters = decorator.node.args.args
    if not parameters:
        return False
    name = parameters[0].arg
    calls = [part for part in ast.walk(decorator.node) if isinstance(part, ast.Call)]
    is_given = any(_is_name(part, name) for call in calls if not _copies_name(call) for part in call.args)
    return is_given or not any(_is_name(call.func, name) for call in calls)


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _copies_name(call: ast.Call) -> bool:
    """`functools.wraps(function)`."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in ("wraps", "update_wrapper")
    return False


@contextlib.contextmanager
def registering(walk: Walk) -> Iterator[None]:
    """While decorators run, which registries are: each definition is one more call of them."""
    before, walk.program.registering = walk.program.registering, True
    yield
    walk.program.registering = before


def define_class(walk: Walk, node: ast.ClassDef) -> None:
    """`class`: its body is walked in a scope of its own, and its functions become methods."""
    cls = Class(node, [_base(walk, base) for base in node.bases], walk.place, walk.scope)
    with registering(walk):
        decorators = [(given, walk.evaluate(given)) for given in node.decorator_list]
    outside = walk.scope
    walk.scope = Scope(node, outside, is_class=True)
    walk.engine.execute(walk, node.body)
    cls.body = walk.scope.names
    walk.scope = outside
    written = (walk.program.functions.get(part) for part in node.body if isinstance(part, ast.FunctionDef))
    for member in (*cls.body.values(), *written):
        if isinstance(member, Function) and member.owner is None:
            member.owner = cls
    walk.program.classes.append(cls)
    walk.scope.bind(node.name, cls)
    with registering(walk):
        for given, decorator in reversed(decorators):
            if isinstance(decorator, Function | Method):
                _made_by(walk, decorator, given, cls)  # A registry: what it returns is taken for the class.


def _base(walk: Walk, node: ast.expr) -> Value:
    """A class that another one derives from; `Base[Config]` is `Base`, whose types are filled in."""
    found = walk.evaluate(node)
    return found.of if isinstance(found, Element) and isinstance(found.of, Class | Ref) else found


def declare_outer(walk: Walk, node: ast.Global | ast.Nonlocal) -> None:
    """`global` and `nonlocal`."""
    walk.scope.outer.update(node.names)
