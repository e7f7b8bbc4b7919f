"""Questions about the grad mode: they get another answer in the first pass of a reentrant checkpoint."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.nodes import all_nodes
from ...facts.objects.containers import given_to
from ...facts.straight import only_value, straight
from ...facts.values import Function, Instance, Method, Result, options
from ..branches.branches import branches, computes_the_same, only_acts, same_value
from ..calls.call_targets import call_targets
from ..names import canonical

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from ...facts.values import FunctionNode, Value
    from ..calls.call_targets import CallTarget
    from ..regions.region import Region

#: Methods whose result needs no gradient, whatever they are called on.
_PLAIN = frozenset(
    ("detach", "item", "tolist", "numpy", "size", "dim", "numel", "argmax", "bool", "long", "int", "new_zeros")
)
#: Functions of torch that gradients go through from their first argument.
_FUNCTIONS = frozenset(
    (
        *("tanh", "sigmoid", "relu", "gelu", "silu", "elu", "leaky_relu", "softplus", "softmax", "log_softmax", "exp"),
        *("log", "sqrt", "sin", "cos", "abs", "square", "pow", "add", "mul", "matmul", "bmm", "linear", "dropout"),
        *("layer_norm", "group_norm", "rms_norm", "normalize", "conv1d", "conv2d", "conv3d", "clamp", "transpose"),
    )
)
_ARITHMETIC = ast.Add | ast.Sub | ast.Mult | ast.Div | ast.MatMult | ast.Pow


class Question(NamedTuple):
    """An expression that is false in the first pass and true in the recomputation."""

    node: ast.expr
    function: FunctionNode

    def choices(self) -> Iterator[ast.If | ast.IfExp]:
        """The conditions that it is a part of, by itself or through a name that holds the answer."""
        names = frozenset(_names_of_answer(self.node, self.function))
        for choice in ast.walk(self.function):
            if not isinstance(choice, ast.If | ast.IfExp):
                continue
            if any(_asks(part, self.node, names) for part in ast.walk(choice.test)):
                yield choice

    def decides(self, nested: AbstractSet[ast.Call]) -> bool:
        """Whether the answer chooses between two computations, none of which is a checkpoint of ``nested``."""
        return any(_computes_apart(choice, self.function, nested) for choice in self.choices())

    @property
    def needs_first_pass(self) -> bool:
        """Whether a branch is there for what it does in the pass without gradients, which only this variant has."""
        return any(
            isinstance(choice, ast.If) and only_acts([*choice.body, *choice.orelse]) for choice in self.choices()
        )


def _computes_apart(choice: ast.If | ast.IfExp, function: FunctionNode, nested: AbstractSet[ast.Call]) -> bool:
    if _differ_in_nothing(choice, function):
        return False
    return not any(part in nested or _applies(part) for way in _ways(choice, function) for part in all_nodes(way))


def _ways(choice: ast.If | ast.IfExp, function: FunctionNode) -> Iterator[ast.AST]:
    """What ``choice`` chooses between."""
    if isinstance(choice, ast.IfExp):
        yield from (choice.body, choice.orelse)
        return
    for branch in branches(choice, function):
        yield from branch


def _differ_in_nothing(choice: ast.If | ast.IfExp, function: FunctionNode) -> bool:
    if isinstance(choice, ast.IfExp):
        return same_value(choice.body, choice.orelse)
    return computes_the_same(*branches(choice, function), function)


def _applies(node: ast.AST) -> bool:
    """Whether an autograd function is applied: the other branch is its forward pass alone."""
    match node:
        case ast.Call(func=ast.Attribute(attr="apply")):
            return True
    return False


def questions(region: Region, entered: Value) -> Iterator[Question]:
    """Those in ``region``, of which ``entered`` is what the checkpoint calls."""
    for call in region.calls_to("torch.is_grad_enabled"):
        if call.place.function is not None:
            yield Question(call.node, call.place.function.node)
            yield from _of_callers(region, call.node, call.place.function)
    for part in _targets(entered):
        node = part.function.node
        if isinstance(node, ast.FunctionDef) and part.parameters():
            for asked in _asking_for_gradient(node, part.parameters()[0]):
                yield Question(asked, node)
            yield from _of_helpers(region, frozenset(part.parameters()), node)


def _of_helpers(region: Region, data: AbstractSet[str], function: FunctionNode) -> Iterator[Question]:
    """Those about a parameter of a function, method or module that ``function`` hands something to that it computes."""
    modules = {argument.arg for argument in function.args.args}
    for call in region.calls:
        around = call.place.function
        if around is None or around.node is not function or not call.node.args:
            continue
        if len(options(call.func)) > 1 or not _is_result(call.node.args[0], set(data), modules):
            continue
        for target in _targets(call.func):
            helper = target.function.node
            if isinstance(helper, ast.FunctionDef) and _surely_runs(region, target.function):
                for asked in _asking_for_gradient(helper, "", {*target.parameters()[:1]}):
                    yield Question(asked, helper)


def _surely_runs(region: Region, function: Function) -> bool:
    """Whether ``region`` comes to ``function`` whatever the module, that it is the `forward` of, was chosen by."""
    owners = [module for module in region.modules if isinstance(module, Instance) and module.cls is function.owner]
    is_inside = any(inside.node is function.node for inside in region.functions)
    return is_inside and not any(region.conditions_of(owner) for owner in owners)


def _targets(called: Value) -> Iterator[CallTarget]:
    """What calling ``called`` runs; for an `nn.Sequential` that a call builds, what its parts run in turn."""
    if isinstance(called, Result) and canonical(called.call.name) == "torch.nn.Sequential":
        for part in given_to(called.call):
            if len(options(part)) == 1:
                yield from _targets(part)
        return
    yield from call_targets(called)


def _is_result(value: ast.expr, data: set[str], modules: set[str]) -> bool:
    """Whether ``value`` is computed from ``data``, by one of the ``modules`` that are given too: `block(h)`."""
    match value:
        case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in modules:
            return _carries(first, data)
    return _computes(value, data)


def _of_callers(region: Region, question: ast.expr, function: Function) -> Iterator[Question]:
    """Where the region calls ``function``, which only answers: `def recording(): return torch.is_grad_enabled()`."""
    value = only_value(function.node)
    if value is None or not _is_answer(value, question):
        return
    for call in region.calls:
        called = call.func.function if isinstance(call.func, Method) else call.func
        if isinstance(called, Function) and called.node is function.node and call.place.function is not None:
            yield Question(call.node, call.place.function.node)


def _asks(part: ast.AST, question: ast.expr, names: frozenset[str]) -> bool:
    return part is question or (isinstance(part, ast.Name) and part.id in names)


def _names_of_answer(question: ast.expr, function: FunctionNode) -> Iterator[str]:
    """The names that hold the answer and nothing else."""
    for statement in ast.walk(function):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_answer(value, question):
                if _stored(function).count(name) == 1:
                    yield name


def _is_answer(value: ast.expr, question: ast.expr) -> bool:
    match value:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _is_answer(operand, question)
        case ast.BoolOp(values=values):
            return any(_is_answer(part, question) for part in values)
    return value is question


def _asking_for_gradient(
    function: ast.FunctionDef, data: str, computed: AbstractSet[str] = frozenset()
) -> Iterator[ast.Attribute]:
    """`hidden.requires_grad` where ``hidden`` is computed from the parameter ``data``: `no_grad` leaves it False.

    So does `hidden.grad_fn`. An input keeps its own flag in both passes.
    """
    computed = set(computed)
    for statement in straight(function.body, ast.With):
        for node in ast.walk(statement):
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr=attribute, ctx=ast.Load()) if name in computed:
                    if attribute in ("requires_grad", "grad_fn") and not _is_bound_before(name, node, statement):
                        yield node
        inputs = {data, *computed}
        computed -= set(_stored(statement))
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name != data and _computes(value, inputs):
                computed.add(name)


def _is_bound_before(name: str, node: ast.expr, statement: ast.AST) -> bool:
    """Whether ``statement`` binds ``name`` anew in front of ``node``, or in a loop around it."""
    stores = (part for part in ast.walk(statement) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))
    in_loop = isinstance(statement, ast.For | ast.While)
    return any(part.id == name and (in_loop or part.lineno < node.lineno) for part in stores)


def _computes(value: ast.expr, inputs: set[str]) -> bool:
    """Whether ``value`` is computed from ``inputs`` by something that gradients go through."""
    match value:
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _ARITHMETIC):
            return any(_carries(side, inputs) for side in (left, right))
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if name in inputs:
            return method not in _PLAIN and not method.startswith("new_") and not method.endswith("_")
        case ast.Call(func=ast.Attribute(value=ast.Name("self")), args=[first, *_]):
            return _carries(first, inputs)
        case ast.Call(func=ast.Attribute(value=ast.Name("torch" | "F") | ast.Attribute(attr="functional"), attr=name)):
            return name in _FUNCTIONS and any(_carries(first, inputs) for first in value.args[:1])
    return False


def _carries(value: ast.expr, inputs: set[str]) -> bool:
    return (isinstance(value, ast.Name) and value.id in inputs) or _computes(value, inputs)


def _stored(body: ast.AST) -> list[str]:
    """The names that are bound in ``body``, once for each time that they stand there."""
    names = (node for node in ast.walk(body) if isinstance(node, ast.Name))
    return [name.id for name in names if isinstance(name.ctx, ast.Store)]
