"""What the functions of a region store outside of it: in attributes, in dicts, in variables of functions around."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ...facts.nodes import all_nodes, is_inside
from ...facts.objects.classes import are_one_family
from ...facts.origin import origin
from ...facts.values import Computed, Dict, Element, Function, Instance, Param, Result, Seq, options
from ..conditions.contexts import is_plain
from ..flow.statements import body_around, holder_of
from ..tensors.gradless import carries_gradient
from ..types import bases, unwrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Set as AbstractSet

    from ...facts.values import Call, Value
    from ...facts.walk import Write
    from ..regions.region import Region
    from ..run import Run

_READS = frozenset(("get", "pop"))
#: How many steps a value is followed back.
_DEPTH = 8


class Stored(NamedTuple):
    """A tensor with a graph that a region leaves outside."""

    #: What it is stored under: an attribute, or a variable; `aux()` where a method gives it.
    name: str
    #: Where it is stored.
    node: ast.AST
    #: The entry of what the attribute or the variable holds; None for what it is itself.
    key: str | int | None = None
    #: The function, or the module, whose variable it is; None for an attribute.
    scope: ast.AST | None = None
    #: Whether the conditions around the place hold for what the region is given.
    is_settled: bool = False

    def is_read_by(self, node: ast.AST) -> bool:
        """Whether ``node`` is it, or a part of it."""
        if self.key is not None:
            return self._is_entry(node)
        match node:
            case ast.Attribute(attr=name) if self.scope is None:
                return name == self.name
            case ast.Call(func=ast.Name("getattr"), args=[_, ast.Constant(value=name), *_]) if self.scope is None:
                return name == self.name
            case ast.Call(func=ast.Attribute(attr=method), args=[]) if self.scope is None:
                return f"{method}()" == self.name
            case ast.Name(id=name) if self.scope is not None:
                return name == self.name and _is_of(node, name, self.scope)
            case ast.Subscript(value=inner):
                return self.is_read_by(inner)
        return False

    def _is_entry(self, node: ast.AST) -> bool:
        held = self._replace(key=None)
        match node:
            case ast.Subscript(value=inner, slice=ast.Constant(value=key)):
                return key == self.key and held.is_read_by(inner)
            case ast.Call(func=ast.Attribute(value=inner, attr=method), args=[ast.Constant(value=key), *_]):
                return method in _READS and key == self.key and held.is_read_by(inner)
        return False


def _is_of(node: ast.Name, name: str, scope: ast.AST) -> bool:
    """Whether ``node`` is the variable ``name`` of ``scope``, and of no function in a module."""
    if origin(node) != origin(scope):
        return False
    if not isinstance(scope, ast.Module):
        return is_inside(node, scope)
    return not any(is_inside(node, function) for function in _binding_functions(scope).get(name, ()))


@lru_cache(maxsize=4)
def _binding_functions(module: ast.Module) -> dict[str, list[ast.AST]]:
    """The functions of a module by the variables and parameters that they have."""
    found: dict[str, list[ast.AST]] = {}
    functions = (node for node in all_nodes(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    for function in functions:
        for part in all_nodes(function):
            if isinstance(part, ast.arg):
                found.setdefault(part.arg, []).append(function)
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                found.setdefault(part.id, []).append(function)
    return found


def stored_outside(run: Run, region: Region) -> Iterator[Stored]:
    """What the functions of ``region`` store in something that is there before and behind it."""
    inside = frozenset[ast.AST](function.node for function in region.functions)
    for write in run.writes:
        function = write.place.function
        if function is not None and function.node in inside and is_plain(write.place):
            yield from _in_dict(run, write, function) if write.is_item else _in_attribute(run, write)
    for function in region.functions:
        yield from _in_variable(run, function, inside)


def handed_out(
    run: Run, stored: Stored, inside: AbstractSet[ast.AST], is_it: Callable[[ast.AST], bool] | None = None
) -> Iterator[Stored]:
    """``stored`` as the callers know it to whom a function outside of the region returns it: `out, aux = net(x)`.

    Args:
        run: The run.
        stored: What a region stores.
        inside: The functions of the region.
        is_it: Which part of a returned tuple is it; None for those that are ``stored`` as it is.
    """
    for node, returns in run.program.returns.items():
        if node in inside:
            continue
        position = _position(is_it or stored.is_read_by, [found.node for found in returns])
        function = run.program.functions.get(node)
        if position is None or function is None:
            continue
        for call in (*run.calls_of(function), *run.forwards.get(node, ())):
            yield from _under(run, call, position, stored)


def _position(is_it: Callable[[ast.AST], bool], returns: list[ast.Return | ast.Lambda]) -> int | str | None:
    """Where in the tuple or dict that each of ``returns`` gives the part stands that ``is_it``; None for nowhere."""
    found = set()
    for statement in returns:
        given = statement.value if isinstance(statement, ast.Return) else None
        found.add(next((at for at, part in _parts(given) if is_it(part)), None))
    return found.pop() if len(found) == 1 else None


def _parts(given: ast.expr | None) -> Iterator[tuple[int | str, ast.expr]]:
    match given:
        case ast.Tuple(elts=parts):
            yield from enumerate(parts)
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value


def _under(run: Run, call: Call, position: int | str, stored: Stored) -> Iterator[Stored]:
    """The variables that hold the part ``position`` of what ``call`` gives."""
    scope = body_around(run, call)
    match holder_of(run, call):
        case ast.Assign(targets=[ast.Tuple(elts=targets)]) if isinstance(position, int) and position < len(targets):
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            if len(names) == len(targets):
                yield Stored(names[position], stored.node, scope=scope)
        case ast.Assign(targets=[ast.Name(id=name)]):
            yield Stored(name, stored.node, position, scope)


def _in_attribute(run: Run, write: Write) -> Iterator[Stored]:
    if is_of_one_family(run, write) and leaves_graph(run, write):
        yield Stored(write.field, write.node)


def leaves_graph(run: Run, write: Write) -> bool:
    """Whether what is stored has a graph."""
    return _has_graph(run, write.value) and not _counts(write)


def _counts(write: Write) -> bool:
    """Whether it may sum up numbers of data, `self.tokens += mask.sum()`: nothing that a module computes goes in."""
    return write.augmented and not _is_of_module(write.value)


def _is_of_module(value: Value, depth: int = _DEPTH) -> bool:
    match value:
        case Result(call) if depth:
            is_module = not call.method and isinstance(call.func, Result | Instance | Element | Param)
            return is_module or any(_is_of_module(part, depth - 1) for part in (call.receiver, *call.args))
        case Computed(operands=operands) if depth:
            return any(_is_of_module(part, depth - 1) for part in operands)
        case Element(of=held) if depth:
            return _is_of_module(held, depth - 1)
    return False


def is_of_one_family(run: Run, write: Write) -> bool:
    """Whether all that the program stores in an attribute of this name are attributes of one class and its bases."""
    others = [other.obj for other in run.writes if other.field == write.field and not other.is_item]
    owners = [it.cls for it in others if isinstance(it, Instance)]
    return isinstance(write.obj, Instance) and len(owners) == len(others) and are_one_family(owners)


def _in_dict(run: Run, write: Write, function: Function) -> Iterator[Stored]:
    """`self.aux["balance"] = loss`, `extra["balance"] = loss` for a dict of a function around."""
    target = write.node.targets[0] if isinstance(write.node, ast.Assign) else None
    if not isinstance(target, ast.Subscript) or not has_graph(run, write.value):
        return
    match target.value, write.obj:
        case ast.Attribute(value=ast.Name("self"), attr=name), _:
            yield Stored(name, write.node, write.field)
        case ast.Name(id=name), Dict(place=made) if made is not None and made.function is not None:
            if is_inside(function.node, made.function.node) and made.function.node is not function.node:
                yield Stored(name, write.node, write.field, made.function.node)


def _in_variable(run: Run, function: Function, inside: AbstractSet[ast.AST]) -> Iterator[Stored]:
    """`nonlocal loss` of a function around."""
    around = function.place.function
    if around is None or around.node in inside:
        return
    declared = {name for node in all_nodes(function.node) if isinstance(node, ast.Nonlocal) for name in node.names}
    for node in all_nodes(function.node) if declared else ():
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) if name in declared:
                if _has_graph(run, function.scope.look_up(name)):
                    yield Stored(name, node, scope=around.node)


def has_graph(run: Run, value: Value) -> bool:
    """Whether ``value`` is computed, by a method of a module too that the function is given: `layer.attend(x)`."""
    return carries_gradient(value) or any(map(carries_gradient, _given_by_module(run, value)))


def _given_by_module(run: Run, value: Value) -> Iterator[Value]:
    """What the one method of the program's modules gives that is called so, of a module that is not known."""
    if not isinstance(value, Result) or not value.call.method or not isinstance(unwrapped(value.call.receiver), Param):
        return
    named = [cls.body[value.call.method] for cls in run.program.classes if value.call.method in cls.body]
    for method in named if len(named) == 1 else ():
        if isinstance(method, Function) and method.owner is not None and "torch.nn.Module" in bases(method.owner):
            yield from (found.value for found in run.program.returns.get(method.node, ()))


def _has_graph(run: Run, value: Value) -> bool:
    """Whether it is computed, or is a tuple or list of which a part is."""
    return any(
        has_graph(run, part)
        for option in options(value)
        for part in (option, *(option.items if isinstance(option, Seq) and option.kind == "tuple" else ()))
    )
