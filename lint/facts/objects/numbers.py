"""Numbers that a program computes: of other numbers, and of how many modules a container holds."""

from __future__ import annotations

import ast
import math
import operator
from typing import TYPE_CHECKING, Any

from ..values import Computed, Const, Result, Value
from .containers import is_module_list, length_of

if TYPE_CHECKING:
    from collections.abc import Callable

#: Larger numbers are not multiplied.
_LARGEST = 10**6


def _product(left: float, right: float) -> float | None:
    return left * right if max(abs(left), abs(right)) <= _LARGEST else None


#: Operators that are computed; a power stays as it is written, which tells what it is for.
ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Mult: _product,
}
#: Functions of numbers that give a number.
CALCULATIONS: dict[str, Callable[..., Any]] = {
    "builtins.abs": abs,
    "builtins.int": int,
    "builtins.max": max,
    "builtins.min": min,
    "builtins.round": round,
    "math.ceil": math.ceil,
    "math.floor": math.floor,
    "math.isqrt": math.isqrt,
    "math.sqrt": math.sqrt,
}
#: How deeply what is computed from something computed is looked at.
_DEPTH = 8


def combined(kind: type[ast.operator], left: float, right: float) -> int | float | None:
    """What an operator gives for two numbers; None for an error, or an operator that is not computed."""
    if kind not in ARITHMETIC:
        return None
    try:
        found = ARITHMETIC[kind](left, right)
    except ArithmeticError:
        return None
    return found if isinstance(found, int | float) else None


def calculated(name: str, numbers: list[Any]) -> int | float | None:
    """What the function ``name`` gives for ``numbers``; None for an error, or for what is no number."""
    if not numbers or not all(type(number) in (int, float) for number in numbers):
        return None
    try:
        found = CALCULATIONS[name](*numbers)
    except (ArithmeticError, TypeError, ValueError):
        return None
    return found if type(found) in (int, float) else None


def settled_number(value: Value) -> Value:
    """``value`` as a constant, where the whole program decides the number; ``value`` itself elsewhere.

    To be asked when the program is read: a container may grow while it is.
    """
    number = None if isinstance(value, Const) else _number(value, _DEPTH)
    return value if number is None else Const(number, value.node)


def _number(value: Value, depth: int) -> int | float | None:
    match value:
        case Const(int() | float() as known) if type(known) is not bool:
            return known
        case Computed(operands=[_, _] as operands, node=ast.BinOp(op=op)) if depth:
            left, right = (_number(operand, depth - 1) for operand in operands)
            return None if left is None or right is None else combined(type(op), left, right)
        case Result(call) if call.kwargs or call.open_args or call.open_kwargs:
            return None
        case Result(call) if call.name == "builtins.len" and len(call.args) == 1:
            return length_of(call.args[0]) if is_module_list(call.args[0]) else None
        case Result(call) if call.name in CALCULATIONS and depth:
            return calculated(call.name, [_number(argument, depth - 1) for argument in call.args])
    return None
