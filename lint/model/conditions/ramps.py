"""Rates that rise from zero along a list of blocks: the last block has one, the first has not."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.identifiers import names_in
from ...facts.nodes import all_nodes
from ...facts.values import Computed, Const, Element, Result, Seq, Unknown, equals
from .guards import own_guards, own_loops

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Value
    from ..events import Checkpointing
    from ..history import History


def last_of_ramp(value: Value) -> Const | None:
    """The last of `torch.linspace(0, 0.1, depth)`, where ``value`` is one of them: some layer gets it."""
    while True:
        match value:
            case Element(of=Seq("list", node=ast.ListComp() as written)) if value.index != 0:
                return _last_written(written)
            case Element(of=inner) if value.index != 0:
                value = inner
            case Computed():
                return _of_number(value)
            case Result(call) if call.method in ("item", "tolist", "numpy", "cpu"):
                value = call.receiver
            case Result(call) if call.name in ("builtins.float", "builtins.list") and call.args:
                value = call.args[0]
            case Result(call) if call.name in ("torch.linspace", "numpy.linspace"):
                is_torch = call.name.startswith("torch")
                last = call.argument(1, "end" if is_torch else "stop")
                is_first = equals(call.argument(2, "steps" if is_torch else "num"), 1) is True
                return last if isinstance(last, Const) and not is_first else None
            case _:
                return None


def may_be_first_of_ramp(run: History, event: Checkpointing) -> bool:
    """Whether ``event`` takes blocks by their place in a list and rates rise along one: theirs may be zero."""
    return _is_told_apart(event) and any(
        last_of_ramp(value) is not None for call in run.program.calls for value in (*call.args, *call.kwargs.values())
    )


def _is_told_apart(event: Checkpointing) -> bool:
    """Whether an index, a slice or a condition on the loop chooses which blocks of a list are checkpointed."""
    loops = [loop for loop in own_loops(event.place) if not isinstance(loop, ast.While)]
    taken = event.node.args[:1] if isinstance(event.node, ast.Call) else []
    if any(
        isinstance(part, ast.Subscript) for node in (*taken, *(it.iter for it in loops)) for part in all_nodes(node)
    ):
        return True
    counted = {name for loop in loops for name in names_in(loop.target)}
    return any(not counted.isdisjoint(names_in(guard.test)) for guard in own_guards(event.place))


def _last_written(made: ast.ListComp) -> Const | None:
    """The last of `[0.2 * i / (depth - 1) for i in range(depth)]`, or a little more."""
    match made.generators:
        case [ast.comprehension(ast.Name(id=name), ast.Call(func=ast.Name(id="range"), args=[end]), ifs=[])]:
            factors = list(_factors(made.elt))
            numbers = [part.value for part in factors if isinstance(part, ast.Constant)]
            counts = [part for part in factors if isinstance(part, ast.Name) and part.id == name]
            rises = len(counts) == 1 and len(numbers) == len(factors) - 1 and not isinstance(end, ast.Constant)
            if rises and len(numbers) == 1 and isinstance(numbers[0], int | float):
                return Const(numbers[0], made)
    return None


def _of_number(value: Value) -> Const | None:
    """The rate of `rate * (i + 1) / depth`, computed for each `i` of a `range`: some layer gets about as much."""
    factors = list(_values_multiplied(value))
    numbers = [part for part in factors if isinstance(part, Const)]
    others = [part for part in factors if not isinstance(part, Const)]
    if len(numbers) == 1 and len(others) == 1 and _counts(others[0]) and isinstance(numbers[0].value, int | float):
        return numbers[0]
    return None


def _values_multiplied(value: Value) -> Iterator[Value]:
    match value:
        case Computed(operands=[left, right], node=ast.BinOp(op=ast.Mult())):
            yield from _values_multiplied(left)
            yield from _values_multiplied(right)
        case Computed(operands=[left, Const()], node=ast.BinOp(op=ast.Div())):
            yield from _values_multiplied(left)
        case _:
            yield value


def _counts(value: Value) -> bool:
    """Whether it is the number of a `range`, or a number more."""
    match value:
        case Computed(operands=[inner, Const()], node=ast.BinOp(op=ast.Add())):
            return _counts(inner)
        case Unknown(node=ast.Call(func=ast.Name(id="range"))):
            return True
    return False


def _factors(product: ast.expr) -> Iterator[ast.expr]:
    """What is multiplied in ``product``, divisors left out."""
    match product:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            yield from _factors(left)
            yield from _factors(right)
        case ast.BinOp(left=left, op=ast.Div()):
            yield from _factors(left)
        case _:
            yield product
