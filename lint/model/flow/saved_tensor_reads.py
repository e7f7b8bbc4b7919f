"""Which `backward` of a custom autograd function reads `ctx.saved_tensors` a second time."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.composed import composed
from ...facts.identifiers import attributes_in
from ...facts.nodes import all_nodes, inner_nodes
from ...facts.objects.classes import ancestors
from ...facts.straight import straight
from ...facts.values import Attr, Class, Function, Ref, options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...facts.values import Call, FunctionNode, Value
    from ..regions.region import Region

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
#: Through how many functions the context is followed; it may come back to the first.
_DEEPEST = 4
_ENDS = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def second_reads(
    region: Region, needs_gradient: Callable[[Value], bool]
) -> Iterator[tuple[Call, ast.Attribute, ast.Attribute]]:
    """The calls of custom functions in ``region`` whose `backward` reads twice, with the first and the second read.

    Args:
        region: What runs again.
        needs_gradient: Whether a tensor that a function gets surely needs a gradient.
    """
    for call in region.calls:
        for option in options(call.func):
            cls = option.base if isinstance(option, Attr) and option.name == "apply" else None
            found = _backward(cls) if isinstance(cls, Class) else None
            saves = isinstance(cls, Class) and _saves_tensors(cls)
            reads = _read_again(found, _Needed(call, needs_gradient)) if found is not None and saves else None
            if reads is not None:
                yield call, *reads


def _backward(cls: Class) -> Function | None:
    """The `backward` of a class that derives from `torch.autograd.Function`."""
    line = (cls, *ancestors(cls))
    if not any(
        isinstance(base, Ref) and base.name == "torch.autograd.Function" for owner in line for base in owner.bases
    ):
        return None
    found = next((owner.body["backward"] for owner in line if "backward" in owner.body), None)
    return found if isinstance(found, Function) else None


def _saves_tensors(cls: Class) -> bool:
    """Whether some method of ``cls`` saves at least one tensor: what is empty may be read twice."""
    calls = (node for owner in (cls, *ancestors(cls)) for node in all_nodes(owner.node) if isinstance(node, ast.Call))
    return any(
        isinstance(call.func, ast.Attribute) and call.func.attr == "save_for_backward" and bool(call.args)
        for call in calls
    )


class _Needed:
    """Which inputs of one call surely need a gradient, asked where `backward` does: `ctx.needs_input_grad[1]`."""

    def __init__(self, call: Call, needs_gradient: Callable[[Value], bool]) -> None:
        self._given = [] if call.open_args else call.args
        self._needs_gradient = needs_gradient

    def _is_needed(self, position: int) -> bool | None:
        is_given = -len(self._given) <= position < len(self._given)
        return True if is_given and self._needs_gradient(self._given[position]) else None

    def answer(self, test: ast.AST, context: str) -> bool | None:
        """What a condition of `backward` is, whose first parameter is ``context``; None where that is open."""
        return composed(test, lambda part: self._answer_of_part(part, context))

    def _answer_of_part(self, part: ast.AST, context: str) -> bool | None:
        match part:
            case ast.Subscript(value=asked, slice=ast.Constant(value=int(position))) if _asks_inputs(asked, context):
                return self._is_needed(position)
            case ast.Call(func=ast.Name("any"), args=[asked]) if _asks_inputs(asked, context):
                return True if any(self._is_needed(position) for position in range(len(self._given))) else None
        return None


def _asks_inputs(node: ast.AST, context: str) -> bool:
    """Whether ``node`` is `ctx.needs_input_grad`."""
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr="needs_input_grad"):
            return name == context
    return False


def _read_again(function: Function, needed: _Needed) -> tuple[ast.Attribute, ast.Attribute] | None:
    """The two reads, where whoever comes to the second one has come by the first."""
    parameters = function.node.args.args
    if isinstance(function.node, ast.Lambda) or not parameters:
        return None
    search = _Search(function, parameters[0].arg, needed)
    search.body(function.node.body, None)
    return search.found


def _called(call: ast.Call, function: Function) -> Function | None:
    """The function of the program that ``call``, in ``function``, runs: `helper(...)` or `Class.helper(...)`."""
    found: Value | None = None
    match call.func:
        case ast.Name(id=name):
            found = function.scope.look_up(name)
        case ast.Attribute(value=ast.Name(id=name), attr=method):
            owner = function.scope.look_up(name)
            lines = (owner, *ancestors(owner)) if isinstance(owner, Class) else ()
            found = next((line.body[method] for line in lines if method in line.body), None)
    return found if isinstance(found, Function) and not isinstance(found.node, ast.Lambda) else None


def _ends_early(function: FunctionNode) -> bool:
    """Whether a call of ``function`` may come back before its last statement."""
    *_, last = straight(function.body, ast.With) if isinstance(function.body, list) else [None]
    return any(isinstance(node, ast.Return) and node is not last for node in all_nodes(function))


class _Search:
    """One pass over a function in the order it runs; ``first`` is the read that every way to here has come by."""

    def __init__(self, function: Function, context: str, needed: _Needed) -> None:
        self.function = function
        self.context = context
        self.needed = needed
        #: The reads in branches that are taken for what the function gets.
        self.by_inputs: list[ast.Attribute] = []
        #: The functions that the context was handed on to, to come here.
        self.callers: list[Function] = []
        self.found: tuple[ast.Attribute, ast.Attribute] | None = None

    def body(self, statements: list[ast.stmt], first: ast.Attribute | None) -> ast.Attribute | None:
        """Go through ``statements``; gives the read that whatever follows has come by."""
        for statement in statements:
            taken = self._taken(statement)
            if taken is None:
                first = self._statement(statement, first)
                continue
            first = self._in_taken(self.body(taken, first), first)
            if taken and isinstance(taken[-1], _ENDS):
                break
        return first

    def _in_taken(self, read: ast.Attribute | None, before: ast.Attribute | None) -> ast.Attribute | None:
        """``read``, in a branch that is taken for what the function gets."""
        if read is not None and before is None:
            self.by_inputs.append(read)
        return read

    def _before_branch(self, test: ast.expr, first: ast.Attribute | None) -> ast.Attribute | None:
        """``first`` for the branches of a condition: one on another input may go with it, or never hold."""
        is_open = first in self.by_inputs and "needs_input_grad" in attributes_in(test)
        return None if is_open else first

    def _taken(self, statement: ast.stmt) -> list[ast.stmt] | None:
        """The branch that is surely taken, as the inputs of the function need gradients; None where that is open."""
        if not isinstance(statement, ast.If):
            return None
        answer = self.needed.answer(statement.test, self.context)
        return None if answer is None else statement.body if answer else statement.orelse

    def _statement(self, node: ast.stmt, first: ast.Attribute | None) -> ast.Attribute | None:
        match node:
            case ast.If(test=test, body=body, orelse=orelse):
                first = self._read(test, first)
                before = self._before_branch(test, first)
                ways = [(part, self.body(part, before)) for part in (body, orelse)]
                left = [read for part, read in ways if not (part and isinstance(part[-1], _ENDS))]
                return first or (left[0] if left and None not in left else None)
            case ast.For(iter=looped, body=body, orelse=orelse) | ast.AsyncFor(iter=looped, body=body, orelse=orelse):
                first = self._read(looped, first)
                self.body(body, first)
                return self.body(orelse, first)
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                for item in items:
                    first = self._read(item.context_expr, first)
                return self.body(body, first)
            case ast.Try(body=body, handlers=[], finalbody=always):
                return self.body(always, self.body(body, first))
            case ast.While() | ast.Try() | ast.Match() | ast.TryStar():
                return first
        return first if isinstance(node, _SCOPES) else self._read(node, first)

    def _read(self, node: ast.AST, first: ast.Attribute | None) -> ast.Attribute | None:
        """Go through an expression, or a statement without others in it."""
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr="saved_tensors") if name == self.context:
                if first is not None and self.found is None:
                    self.found = first, node
                return first or node
            case ast.IfExp(test=test, body=body, orelse=orelse):
                if (answer := self.needed.answer(test, self.context)) is not None:
                    return self._in_taken(self._read(body if answer else orelse, first), first)
                first = self._read(test, first)
                before = self._before_branch(test, first)
                ways = [self._read(part, before) for part in (body, orelse)]
                return first or (ways[0] if None not in ways else None)
            case ast.BoolOp(values=[start, *rest]):
                first = self._read(start, first)
                for other in rest:
                    self._read(other, first)
                return first
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                return self._read(node.generators[0].iter, first)
        if isinstance(node, _SCOPES):
            return first
        for part in _in_order(node):
            first = self._read(part, first)
        return self._handed_on(node, first) if isinstance(node, ast.Call) else first

    def _handed_on(self, call: ast.Call, first: ast.Attribute | None) -> ast.Attribute | None:
        """Go through the function that ``call`` hands the context to."""
        called = _called(call, self.function)
        name = _parameter_for(self.context, call, called.node) if called is not None else None
        if called is None or name is None or isinstance(called.node, ast.Lambda) or len(self.callers) == _DEEPEST:
            return first
        caller, context = self.function, self.context
        self.callers.append(caller)
        self.function, self.context = called, name
        read = self.body(called.node.body, first)
        self.function, self.context = caller, context
        self.callers.pop()
        return first if _ends_early(called.node) else read


def _parameter_for(argument: str, call: ast.Call, function: FunctionNode) -> str | None:
    """The parameter of ``function`` that ``call`` gives the variable ``argument``."""
    for given, parameter in zip(call.args, function.args.args, strict=False):
        if isinstance(given, ast.Starred):
            return None
        if isinstance(given, ast.Name) and given.id == argument:
            return parameter.arg
    named = (keyword.arg for keyword in call.keywords if getattr(keyword.value, "id", None) == argument)
    return next(named, None)


def _in_order(node: ast.AST) -> list[ast.AST]:
    return sorted(inner_nodes(node), key=lambda part: (getattr(part, "lineno", 0), getattr(part, "col_offset", 0)))
