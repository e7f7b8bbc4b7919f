"""Checkpoints that were to wrap: what they give goes to where the function or the module came from."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.identifiers import attributes_in, names_in
from ...facts.nodes import all_nodes, attribute, is_behind, source_text
from ...facts.parameters import positional_names
from ...facts.surroundings import holders, parents_in
from ...facts.values import Method
from ..flow.unused import is_unused
from ..names import canonical

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Function
    from ..history import History

_FORWARD = "forward"
#: Methods that put a module into another one.
_ADD = ("add_module", "register_module")
#: What a module has and a tensor lacks.
_OF_MODULES = frozenset(
    ("parameters", "named_parameters", "modules", "named_modules", "children", "state_dict", "load_state_dict", "train")
)
#: Methods that go through the modules of a model.
_MODULES = ("modules", "named_modules", "children", "named_children", "_modules")
_GROUPS = ast.List | ast.Tuple | ast.Starred | ast.IfExp | ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.keyword
#: More functions than this that hand a result on are not looked at.
_HOPS = 3


class _Result(NamedTuple):
    """What one call gives, and what it was given to wrap."""

    run: History
    call: Call
    wrapped: ast.expr
    hops: int

    @property
    def body(self) -> ast.AST:
        """What the call stands in."""
        function = self.call.place.function
        return function.node if function is not None else self.run.program.tree_with(self.call.node)


def is_put_back(run: History, call: Call, wrapped: ast.expr, hops: int = _HOPS) -> bool:
    """Whether what ``call`` gives goes to where ``wrapped`` came from, or to a place that takes modules alone.

    Args:
        run: The history that ``call`` is of.
        call: The call that was to wrap something: of `checkpoint`, or of a function that returns what that gives.
        wrapped: What it was given, `layer` or `layer.forward`, as it is written.
        hops: How many functions to follow a result through that they return.
    """
    result = _Result(run, call, wrapped, hops)
    return any(_takes(result, holder, value) for holder, value in _destinations(result))


def _destinations(result: _Result) -> Iterator[tuple[ast.AST, ast.AST]]:
    """The statements and calls that get the result, with the expression that gives it to them."""
    parents = parents_in(result.body)
    waiting: list[ast.AST] = [result.call.node]
    seen = set[str]()
    while waiting:
        value = waiting.pop()
        holder = parents.get(value, result.body)
        while isinstance(holder, _GROUPS) and holder is not result.body:
            value, holder = holder, parents.get(holder, result.body)
        yield holder, value
        match holder:
            case ast.Assign(targets=[ast.Name(id=name)]) if name not in seen and name != source_text(result.wrapped):
                seen.add(name)
                waiting += (read for read in _reads(result.body, name) if is_behind(read, value))


def _reads(body: ast.AST, name: str) -> Iterator[ast.Name]:
    for node in all_nodes(body):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            yield node


def _takes(result: _Result, holder: ast.AST, value: ast.AST) -> bool:
    match holder:
        case ast.Assign(targets=targets):
            return any(_is_origin(result, target, value) for target in targets)
        case ast.AnnAssign(target=target):
            return _is_origin(result, target, value)
        case ast.Call(func=ast.Name(id="setattr"), args=[obj, name, given]) if given is value:
            return _is_set_back(result, obj, name)
        case ast.Call(func=ast.Attribute(attr=method), args=[_, given]) if given is value and method in _ADD:
            return True
        case ast.Call():
            return _makes_module(result.run, holder)
        case ast.Expr():
            return _is_one_of_modules(result)
        case ast.Return() | ast.Lambda() | ast.FunctionDef():
            return _is_returned_to_wrap(result)
    return False


def _is_origin(result: _Result, target: ast.expr, value: ast.AST) -> bool:
    """Whether ``target`` is what was given to wrap, holds it, or is the `forward` of a module."""
    wrapped = result.wrapped
    match target:
        case ast.Attribute(attr="forward"):
            return True
        case ast.Name(id=name) if isinstance(wrapped, ast.Name) and wrapped.id == name:
            return value is result.call.node and _is_no_tensor_later(result, name)
        case ast.Attribute() | ast.Subscript(value=ast.Attribute()) if source_text(target) == source_text(wrapped):
            return True
        case ast.Attribute() | ast.Name() if isinstance(value, ast.ListComp | ast.GeneratorExp | ast.DictComp):
            return _goes_through(value.generators[0], wrapped, source_text(target))
        case ast.Subscript(value=ast.Attribute(attr="_modules")):
            return True
        case ast.Subscript(value=held):
            return any(_goes_through(loop, wrapped, source_text(held)) for loop in _loops(result))
    return False


def _goes_through(loop: ast.For | ast.comprehension, wrapped: ast.expr, held: str) -> bool:
    """Whether ``wrapped`` is what ``loop`` takes, one after the other, out of ``held``, an attribute."""
    return "." in held and _is_chosen(loop, wrapped) and _container(loop.iter) == held


def _container(iterated: ast.expr) -> str:
    """What a loop goes through: `model.blocks` of `enumerate(model.blocks)` and `model.blocks.named_children()`."""
    match iterated:
        case ast.Call(func=ast.Name(id="enumerate" | "list" | "reversed"), args=[inner, *_]):
            return _container(inner)
        case ast.Call(func=ast.Attribute(value=held, attr=method), args=[]) if method in (*_MODULES, "items", "values"):
            return _container(held)
    return source_text(iterated).removesuffix("._modules")


def _is_chosen(loop: ast.For | ast.comprehension, wrapped: ast.expr) -> bool:
    return isinstance(wrapped, ast.Name) and wrapped.id in names_in(loop.target)


def _is_set_back(result: _Result, obj: ast.expr, name: ast.expr) -> bool:
    """Whether `setattr(obj, name, ...)` replaces what was wrapped."""
    match name, result.wrapped:
        case ast.Constant(value="forward"), _:
            return True
        case ast.Constant(value=str(field)), ast.Attribute(value=base, attr=attr):
            return field == attr and source_text(base) == source_text(obj)
        case _, ast.Call(func=ast.Name(id="getattr"), args=[base, field, *_]):
            return source_text(field) == source_text(name) and source_text(base) == source_text(obj)
    held = (_container(loop.iter) for loop in _loops(result) if _is_chosen(loop, result.wrapped))
    return _is_one_of_modules(result) or source_text(obj) in held


def _is_one_of_modules(result: _Result) -> bool:
    """Whether what was wrapped is one of the modules of a model that a loop goes through."""
    chosen = (loop for loop in _loops(result) if _is_chosen(loop, result.wrapped))
    return any(not attributes_in(loop.iter).isdisjoint(_MODULES) for loop in chosen)


def _loops(result: _Result) -> list[ast.For]:
    return [node for node in holders(result.call.node, result.body) if isinstance(node, ast.For)]


def _makes_module(run: History, call: ast.Call) -> bool:
    """Whether ``call`` makes a list of modules, or a wrapper around one."""
    names = (canonical(made.name) for made in run.calls_at(call))
    return any(
        name.startswith("torch.nn.") and name.endswith(("List", "Dict", "Sequential", "Parallel")) for name in names
    )


def _is_no_tensor_later(result: _Result, name: str) -> bool:
    """Whether ``name``, bound to what it was given as, is not used as what a checkpoint gives."""
    if is_unused(result.run, result.call):
        return True
    parents = parents_in(result.body)
    for read in _reads(result.body, name):
        if not is_behind(read, result.call.node):
            continue
        match parents.get(read):
            case ast.Call(func=func, args=[_, *_]) if func is read:
                return True
            case ast.Attribute(attr=attr) if attr in _OF_MODULES:
                return True
            case ast.AST() as holder if not isinstance(holder, ast.Assign) and _takes(result, holder, read):
                return True
    return False


def _is_returned_to_wrap(result: _Result) -> bool:
    """Whether the function around the call is one that wraps what it gets, as its annotation or its callers say."""
    function = result.call.place.function
    if function is None or not result.hops:
        return False
    returns = getattr(function.node, "returns", None)
    if returns is not None and "Module" in source_text(returns):
        return True
    return any(
        is_put_back(result.run, call, given, result.hops - 1)
        for call in result.run.calls_of(function)
        if (given := given_for(function, call, result.wrapped)) is not None
    )


def given_for(function: Function, call: Call, wrapped: ast.expr) -> ast.expr | None:
    """What ``call`` gives for the parameter that ``function`` wraps, or wraps the `forward` of."""
    named = attribute(wrapped)
    name = named.value if named is not None and named.attr == _FORWARD else wrapped
    names = positional_names(function.node)
    if not isinstance(name, ast.Name) or name.id not in names:
        return None
    return call.written_arguments(names[isinstance(call.func, Method) :]).get(name.id)
