"""Which parameters of a function it changes in place before it binds their names to something else."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.nodes import all_nodes, is_behind, is_inside
from ...facts.objects.containers import container_kind, first_given, first_held
from ...facts.straight import straight
from ...facts.surroundings import parents_in
from ...facts.values import Attr, Instance, Ref, Result, Value, equals
from ..calls.call_targets import call_targets
from ..names import canonical
from ..regions.given_parameters import NOTHING_GIVEN
from ..types import bases
from .randomness import drops, may_drop_nothing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from ...facts.values import Call, Function
    from ..regions.given_parameters import GivenParameters
    from ..run import Run

#: Methods with a trailing underscore that change no value.
_SETTINGS = frozenset(("requires_grad_", "share_memory_", "retain_grad_", "detach_"))
#: Changes that have the same effect when they are made twice.
_IDEMPOTENT = frozenset(
    ("relu_", "zero_", "fill_", "masked_fill_", "clamp_", "clip_", "copy_", "abs_", "triu_", "tril_", "nan_to_num_")
)
#: Modules that can overwrite what they get, by the position of their `inplace`.
_OVERWRITING = {
    f"torch.nn.{name}": position
    for position, names in (
        (0, ("ReLU", "ReLU6", "SELU", "SiLU", "Hardswish", "Hardsigmoid", "Mish")),
        (1, ("LeakyReLU", "ELU", "CELU", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d")),
        (2, ("Hardtanh", "Threshold")),
    )
    for name in names
}
_DROPS = "dropout"
#: Functions with an argument `inplace`, and its position.
_FUNCTIONAL = {
    "torch.nn.functional." + name: position
    for position, names in (
        (1, ("relu", "relu6", "selu", "silu", "hardswish", "hardsigmoid", "mish")),
        (2, ("leaky_relu", "elu", "celu")),
        (3, ("threshold", "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "hardtanh")),
    )
    for name in names
}
#: Methods whose result shares the tensor's memory.
_VIEWS = frozenset(("view", "view_as", "unsqueeze", "squeeze", "transpose", "permute", "t"))
#: Methods whose result is the tensor's elements.
_AS_IT_IS = _VIEWS | {"to", "type_as", "float", "half", "bfloat16", "expand", "reshape", "contiguous", "cuda", "sum"}
#: What a tensor is asked for besides its elements.
_QUESTIONS = frozenset(("shape", "dtype", "device", "ndim", "size", "dim", "numel", "requires_grad"))
#: Statements whose inside may not run.
_BRANCHES = (ast.If, ast.Try, ast.While, ast.FunctionDef, ast.ClassDef)
#: Methods that numbers, texts and containers have too.
_OF_BUILTINS = frozenset(name for kind in (list, dict, set, str, int, float, bytes) for name in dir(kind))


class Change(NamedTuple):
    """A change of parameter ``name`` by ``node``; ``once`` when making it a second time changes nothing more."""

    name: str
    node: ast.AST
    once: bool
    #: Whether it is made in train mode alone.
    in_training: bool = False


def is_decided(function: Function, change: Change) -> bool:
    """Whether ``change`` stands in a branch, or behind one that returns: what is given decides which way is taken."""
    for part in all_nodes(function.node):
        if isinstance(part, ast.If):
            returns = any(isinstance(end, ast.Return) for end in (*part.body, *part.orelse))
            if is_inside(change.node, part) or (returns and is_behind(change.node, part)):
                return True
    return False


def matters(function: Function, change: Change) -> bool:
    """Whether what ``change`` leaves may go into more than sums.

    What only adds to the result has right gradients, however often it is changed.
    """
    if not isinstance(change.node, ast.AugAssign) or not isinstance(change.node.target, ast.Name):
        return True
    names = [part for part in all_nodes(function.node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)]
    #: The names that it goes to, and the statements that give it to them.
    waiting: list[tuple[str, ast.AST | None]] = [(change.name, None)]
    for name, given in waiting:
        for part in names:
            if part.id != name or (given is not None and not is_behind(part, given)):
                continue
            match _end_of_sum(part, function):
                case ast.Assign(targets=[ast.Name(id=target)]) as statement:
                    waiting += [] if (target, statement) in waiting else [(target, statement)]
                case ast.Return() | ast.AugAssign() | ast.Attribute() | ast.Compare():
                    pass
                case _:
                    return True
    return False


def _end_of_sum(part: ast.Name, function: Function) -> ast.AST | None:
    """What stands around the sum that ``part`` is a term of; the question where it is only asked for what it is."""
    above = parents_in(function.node)
    inner: ast.AST = part
    holder = above.get(inner)
    while holder is not None and _passes_on(holder, inner):
        inner, holder = holder, above.get(holder)
    match holder:
        case ast.Attribute(attr=name) if name not in _QUESTIONS:
            return inner
        case ast.Compare(ops=[op]) if not isinstance(op, ast.Is | ast.IsNot):
            return inner
    return holder


def _passes_on(holder: ast.AST, inner: ast.AST) -> bool:
    """Whether ``holder`` is a sum with ``inner`` in it, or its elements as they are."""
    match holder:
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            return True
        case ast.Subscript(value=value):
            return value is inner
        case ast.Attribute(attr=name):
            return name in _AS_IT_IS
        case ast.Call(func=function):
            return function is inner
    return False


def changes(
    run: Run,
    function: Function,
    depth: int = 3,
    given: AbstractSet[str] = frozenset(),
    values: GivenParameters = NOTHING_GIVEN,
) -> Iterator[Change]:
    """The first changes in place of the parameters of a function that every run of it makes.

    Args:
        run: The run.
        function: The function.
        depth: How many calls to follow into the functions that it hands its parameters to.
        given: The parameters that are known to be tensors.
        values: What is given for the parameters.
    """
    certain = (call for call in run.bodies.calls_in(function) if not may_drop_nothing(call))
    calls = {id(call.node): values.called_by(call) for call in certain}
    arguments = function.node.args
    parameters = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    tensors = {name for call in run.bodies.calls_in(function) for name in _module_inputs(call.node, call.func)}
    tensors |= given
    tensors |= {
        arg.arg for arg in function.node.args.args if arg.annotation and "Tensor" in ast.unparse(arg.annotation)
    }
    tensors |= {name for node in ast.walk(function.node) for name in used_as_tensors(node, calls)}
    open_names = {argument.arg for argument in parameters}
    views: dict[str, str] = {}
    body = function.node.body if isinstance(function.node.body, list) else [function.node.body]
    steady = given - {name for statement in body for name in rebound(statement)}
    for statement in straight(_taken(body, steady), ast.With, ast.For):
        helpers = changes_in_helpers(run, statement, calls, tensors, depth)
        for change in (*changes_in(statement, calls, tensors), *helpers):
            name = views.get(change.name, change.name)
            if name in open_names:
                yield change._replace(name=name)
        seen = {alias: views.get(name, name) for alias, name in views_bound(statement) if alias != name}
        bound = rebound(statement)
        open_names -= bound
        views = {alias: name for alias, name in views.items() if alias not in bound} | seen


def _taken(body: Iterable[ast.AST], present: AbstractSet[str]) -> Iterator[ast.AST]:
    """``body``, and what stands in its branches in place of those that ask whether one of ``present`` is None."""
    for statement in body:
        match statement:
            case ast.If(
                test=ast.Compare(
                    left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(None)]
                )
            ) if name in present:
                branch = statement.body if isinstance(op, ast.IsNot) else statement.orelse
                yield from _taken(branch, present)
                if branch and isinstance(branch[-1], ast.Return | ast.Raise):
                    return
            case ast.If(body=one, orelse=other) if any(isinstance(end, ast.Return) for end in (*one, *other)):
                return  # What follows may not run.
            case _:
                yield statement


def views_bound(statement: ast.AST) -> Iterator[tuple[str, str]]:
    """The name that ``statement`` binds to what another name holds, or to a view of that."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=alias)], value=value) if name := shared_with(value):
            yield alias, name


def shared_with(node: ast.expr) -> str:
    """The variable whose memory ``node`` shares: itself, a view or a slice of it; empty for a tensor of its own."""
    while True:
        match node:
            case ast.Name(id=name):
                return name
            case ast.Attribute(value=inner, attr="data" | "T" | "mT"):
                node = inner
            case ast.Subscript(value=inner, slice=index) if _is_basic(index):
                node = inner
            case ast.Call(func=ast.Attribute(value=inner, attr=method)) if method in _VIEWS | {"detach"}:
                node = inner
            case _:
                return ""


def _is_basic(index: ast.expr) -> bool:
    """Whether an index is of numbers and slices, which give a view: a mask gives a copy."""
    match index:
        case ast.Slice():
            return True
        case ast.Constant(value=value):
            return not isinstance(value, str)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            return True
        case ast.Tuple(elts=parts):
            return all(map(_is_basic, parts))
    return False


def changes_in(statement: ast.AST, calls: dict[int, Value], tensors: AbstractSet[str]) -> Iterator[Change]:
    """The changes that a statement always makes when it runs.

    Args:
        statement: The statement.
        calls: What each call of the function around it calls, by the id of its node.
        tensors: The names that are known to be tensors: `x += 1` binds a number anew.
    """
    if isinstance(statement, _BRANCHES):
        return
    yield from (change for change in stores_in(statement) if change.name in tensors)
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            yield from changes_of_call(node, calls.get(id(node)))


def changes_in_helpers(
    run: Run, statement: ast.AST, calls: dict[int, Value], tensors: AbstractSet[str], depth: int = 3
) -> Iterator[Change]:
    """What functions of the file, called in a statement that always runs, change of the names they are given."""
    if depth == 0 or isinstance(statement, _BRANCHES):
        return
    for node in ast.walk(statement):
        for part in call_targets(calls[id(node)]) if id(node) in calls and isinstance(node, ast.Call) else ():
            given = _named_arguments(node, part.parameters()) if isinstance(node, ast.Call) else {}
            known = frozenset(name for name, argument in given.items() if argument in tensors)
            for change in changes(run, part.function, depth - 1, known):
                if change.name in given:
                    once = change.once or not matters(part.function, change)
                    yield Change(given[change.name], node, once, change.in_training)


def _named_arguments(node: ast.Call, parameters: list[str]) -> dict[str, str]:
    """By the parameter the variable that a call gives for it."""
    given = dict(zip(parameters, node.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg is not None}
    return {name: argument.id for name, argument in given.items() if isinstance(argument, ast.Name)}


def stores_in(statement: ast.AST) -> Iterator[Change]:
    """What a statement changes if it is a tensor: `x += 1`, `x[0] = 1`."""
    match statement:
        case ast.AugAssign(target=ast.Subscript(value=held)) if name := shared_with(held):
            yield Change(name, statement, False)
        case ast.AugAssign(target=target) if name := shared_with(target):
            yield Change(name, statement, False)
        case ast.Assign(targets=[ast.Subscript(value=held)]) if name := shared_with(held):
            yield Change(name, statement, True)


def changes_of_call(node: ast.Call, called: Value | None) -> Iterator[Change]:
    """What a call of ``called`` changes of the names that it is given, or whose method it is."""
    match node:
        case ast.Call(args=[given, *_]) if isinstance(called, Ref) and _is_in_place_function(called.name):
            if name := shared_with(given):
                yield Change(name, node, called.name.rpartition(".")[2] in _IDEMPOTENT)
        case ast.Call(func=ast.Attribute(value=inner, attr=method)) if _is_in_place(method):
            if name := shared_with(inner):
                yield Change(name, node, method in _IDEMPOTENT)
        case ast.Call(args=[given, *_]) if called is not None and (name := shared_with(given)):
            head = overwriting_head(called)
            if head is not None or _asks_for_in_place(node, called):
                random = is_dropping(head or called)
                yield Change(name, node, not random, in_training=random)


def _is_in_place_function(function: str) -> bool:
    """Whether it is `torch.relu_` or the like."""
    owner, _, name = function.rpartition(".")
    return owner in ("torch", "torch.nn.functional") and _is_in_place(name)


def _is_in_place(method: str) -> bool:
    return method.endswith("_") and not method.endswith("__") and method[0] != "_" and method not in _SETTINGS


def overwriting_head(module: Value) -> Result | None:
    """The module of torch that overwrites what ``module`` gets: itself, or the head of an `nn.Sequential`."""
    head: Value | None = module
    while head is not None and container_kind(head) == "Sequential":
        head = first_given(head.call) if isinstance(head, Result) else _first_of_own(head)
    return head if isinstance(head, Result) and _overwrites(head.call) else None


def _first_of_own(module: Value) -> Value | None:
    return first_held(module) if isinstance(module, Instance) else None


def _overwrites(built: Call) -> bool:
    """Whether it is a module of torch built with ``inplace=True``, and one that drops surely drops something."""
    position = _OVERWRITING.get(canonical(built.name))
    asked = position is not None and equals(built.argument(position, "inplace"), True) is True
    return asked and (_DROPS not in built.name.lower() or drops(built))


def is_dropping(called: Value) -> bool:
    """Whether what is called, a module or a function of torch, drops, which it does in train mode alone."""
    name = called.call.name if isinstance(called, Result) else getattr(called, "name", "")
    return _DROPS in name.lower()


def _asks_for_in_place(node: ast.Call, called: Value) -> bool:
    """Whether ``node`` is `torch.nn.functional.relu(..., inplace=True)` or the like."""
    position = _FUNCTIONAL.get(called.name) if isinstance(called, Ref) else None
    if position is None or any(isinstance(argument, ast.Starred) for argument in node.args):
        return False
    given = [*node.args[position : position + 1], *(word.value for word in node.keywords if word.arg == "inplace")]
    return any(isinstance(value, ast.Constant) and value.value is True for value in given)


def _module_inputs(node: ast.Call, called: Value) -> Iterator[str]:
    """The names that are handed to a module, which takes tensors."""
    is_module = isinstance(called, Instance) or (
        isinstance(called, Result) and called.call.name.startswith("torch.nn.")
    )
    if is_module:
        yield from (argument.id for argument in node.args if isinstance(argument, ast.Name))


def used_as_tensors(node: ast.AST, calls: dict[int, Value]) -> Iterator[str]:
    """The names that ``node`` uses as only a tensor can be used."""
    match node:
        case ast.Call(args=[ast.Name(id=name), *_]) if _takes_tensors(calls.get(id(node))):
            yield name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method not in _OF_BUILTINS:
            yield name
        case ast.BinOp(left=ast.Name(id=name), op=ast.MatMult()) | ast.BinOp(op=ast.MatMult(), right=ast.Name(id=name)):
            yield name
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple() | ast.UnaryOp(op=ast.Invert())):
            yield name


def _takes_tensors(called: Value | None) -> bool:
    """Whether it is a function of torch, or something that a module holds and calls."""
    match called:
        case Ref(name):
            return name.startswith("torch.")
        case Attr(base=Instance(cls)):
            return any(base.startswith("torch.nn.") for base in bases(cls))
    return False


def rebound(statement: ast.AST) -> set[str]:
    """The names that the statement binds anew, in whatever branch."""
    if isinstance(statement, ast.AugAssign):
        return set()
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
