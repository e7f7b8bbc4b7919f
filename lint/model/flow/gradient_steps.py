"""The statements of a function that gradients flow through: which names each of them fills, and from what."""

from __future__ import annotations

import ast
import sys
from bisect import bisect_left
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ...facts.nodes import inner_nodes
from .recorded import recorded_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from ...facts.grad_modes import GradModes

#: Methods and attributes whose values need no gradient of their object, functions of torch of these names too.
_CUTS = frozenset(
    (
        *("detach", "detach_", "data", "item", "tolist", "numpy", "long", "int", "bool"),
        *("argmax", "argmin", "argsort", "sign", "generate"),
        *("shape", "size", "numel", "dim", "ndim", "device", "dtype", "requires_grad"),
    )
)
_PLAIN_FUNCTIONS = frozenset(("len", "int", "float", "bool", "str", "range", "isinstance", "print"))
_ADDING = frozenset(("append", "extend", "add", "insert", "update"))
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)

#: Line and column.
Position: TypeAlias = tuple[int, int]
#: Behind everything.
_END = (sys.maxsize, 0)


class Cuts:
    """What gradients do not pass on the way back through an expression: by the name of a method or a function."""

    def stops(self, node: ast.AST) -> bool:
        """Whether no gradient goes to ``node``."""
        return _is_cut(node)

    def is_end(self, node: ast.AST) -> bool:
        """Whether ``node`` is one of those that are looked for, whatever they are made of."""
        return False


_CUTS_BY_NAME = Cuts()


class Step(NamedTuple):
    """One statement that fills names; a dotted name, `self.loss`, is one too."""

    start: Position
    end: Position
    filled: frozenset[str]
    #: Whether it leaves nothing of what the names held before.
    replaces: bool
    values: tuple[ast.expr, ...]
    #: Where the block ends behind which it may not have run.
    until: Position = _END


class Steps:
    """The steps of a function or a module itself, found by the names that they fill."""

    __slots__ = ("_filling", "_starts", "_steps")

    def __init__(self, body: ast.AST, grad: GradModes) -> None:
        steps = (step for node in recorded_nodes(body, grad, own_nodes) for step in _steps(node))
        #: In the order they are written.
        self._steps = sorted((*steps, *_emptied(body, grad)), key=lambda step: step.start)
        self._starts = [step.start for step in self._steps]
        self._filling: dict[str, list[int]] = {}
        for index, step in enumerate(self._steps):
            for name in step.filled:
                self._filling.setdefault(name, []).append(index)

    def traced(self, wanted: set[str], last: Position, cuts: Cuts = _CUTS_BY_NAME) -> Iterator[ast.expr]:
        """The expressions that fill ``wanted`` at ``last``, the last first.

        In the end ``wanted`` holds the names that were filled before the first step.
        """
        waiting: list[int] = []
        self._await(waiting, wanted, bisect_left(self._starts, last))
        done = -1
        while waiting:
            index = -heappop(waiting)
            step = self._steps[index]
            if index == done or wanted.isdisjoint(step.filled):
                continue
            done = index
            if step.until < last:
                self._await(waiting, step.filled & wanted, index)
                continue
            yield from step.values
            if step.replaces:
                wanted -= step.filled
            read = reads(*step.values, cuts=cuts)
            wanted |= read
            self._await(waiting, read | (step.filled & wanted), index)

    def filled(self, names: frozenset[str], first: Position, last: Position) -> frozenset[str]:
        """Those of ``names`` that a step between the two positions fills."""
        start, end = bisect_left(self._starts, first), bisect_left(self._starts, last)
        return frozenset(name for name in names if self._fills(name, start, end))

    def _fills(self, name: str, start: int, end: int) -> bool:
        filling = self._filling.get(name, ())
        position = bisect_left(filling, start)
        return position < len(filling) and filling[position] < end

    def _await(self, waiting: list[int], names: AbstractSet[str], before: int) -> None:
        """Add the last steps before ``before`` that fill ``names`` to the heap ``waiting``, the last one first."""
        for name in names:
            filling = self._filling.get(name, ())
            position = bisect_left(filling, before)
            if position:
                heappush(waiting, -filling[position - 1])


def position(node: ast.AST) -> Position:
    """Where ``node`` begins."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def end_of(node: ast.AST) -> Position:
    """Where ``node`` ends."""
    return getattr(node, "end_lineno", None) or 0, getattr(node, "end_col_offset", None) or 0


def reads(*values: ast.expr, cuts: Cuts = _CUTS_BY_NAME) -> frozenset[str]:
    """The names, dotted ones too, that gradients of ``values`` go to."""
    return frozenset(name for value in values for node in carried(value, cuts) if (name := _dotted(node)))


def carried(value: ast.AST, cuts: Cuts = _CUTS_BY_NAME) -> Iterator[ast.AST]:
    """The parts of ``value`` that its gradient may go to, past none of the ``cuts``."""
    stack = [value]
    while stack:
        node = stack.pop()
        if cuts.is_end(node):
            yield node
        elif not cuts.stops(node):
            yield node
            stack += inner_nodes(node)


def own_nodes(node: ast.AST) -> list[ast.AST]:
    """The nodes right below ``node``, without functions and classes."""
    return [part for part in inner_nodes(node) if not isinstance(part, _FUNCTIONS)]


def _emptied(body: ast.AST, grad: GradModes) -> Iterator[Step]:
    """The steps that give names other values without gradients, each for as long as control surely came through it."""
    waiting = [(block, _END) for block in _blocks(body)]
    while waiting:
        block, end = waiting.pop()
        for statement in block:
            if grad.is_off_at(statement):
                found = (step for step in _steps(statement) if step.replaces)
                yield from (step._replace(values=(), until=end) for step in found)
            for inner in _blocks(statement) if not isinstance(statement, _FUNCTIONS) else ():
                is_surely_run = isinstance(statement, ast.With | ast.AsyncWith)
                waiting.append((inner, end if is_surely_run else end_of(inner[-1])))


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks of statements in ``node``, those of its handlers and cases too."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block:
            yield block
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def _steps(node: ast.AST) -> Iterator[Step]:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _pairs(node, target, value)
        case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
            yield from _pairs(node, target, value)
        case ast.AugAssign(target=target, value=value):
            yield _step(node, target, False, value)
        case ast.For(target=target, iter=value):
            yield _step(value, target, False, value)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=target, attr=method), args=values)):
            if method in _ADDING:
                yield _step(node, target, False, *values)
            elif method == "detach_":
                yield _step(node, target, True)


def _pairs(node: ast.AST, target: ast.expr, value: ast.expr) -> Iterator[Step]:
    """The steps of an assignment: `a, b = f(x), g(y)` is two of them."""
    match target, value:
        case ((ast.Tuple(elts=targets) | ast.List(elts=targets)), (ast.Tuple(elts=values) | ast.List(elts=values))):
            if len(targets) == len(values) and not any(isinstance(part, ast.Starred) for part in (*targets, *values)):
                for left, right in zip(targets, values, strict=True):
                    yield from _pairs(node, left, right)
                return
    yield _step(node, target, not isinstance(target, ast.Subscript), value)


def _step(node: ast.AST, target: ast.expr, replaces: bool, *values: ast.expr) -> Step:
    return Step(position(node), end_of(node), frozenset(_filled(target)), replaces, values)


def _filled(target: ast.expr) -> Iterator[str]:
    match target:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from _filled(part)
        case ast.Starred(value=inner) | ast.Subscript(value=inner):
            yield from _filled(inner)
        case _:
            yield from filter(None, (_dotted(target),))


def _dotted(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            owner = _dotted(value)
            return f"{owner}.{name}" if owner else ""
    return ""


def _is_cut(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr=name) | ast.Call(func=ast.Attribute(attr=name)):
            return name in _CUTS
        case ast.Call(func=ast.Name(id=name)):
            return name in _PLAIN_FUNCTIONS
        case ast.IfExp(body=body, orelse=orelse):
            return _is_cut(body) or _is_cut(orelse)
    return isinstance(node, ast.Compare | ast.Lambda)
