"""Parameters that a call gives to a module in place of its own: `functional_call(model, parameters, x)`."""

from __future__ import annotations

import ast

from ...facts.values import Seq, Value, options


def are_computed(parameters: Value) -> bool:
    """Whether the dict certainly holds other tensors than the module's own."""
    for option in options(parameters):
        held = option.items if isinstance(option, Seq) else [option]
        if not any(isinstance(value.node, ast.DictComp) and _is_computed(value.node.value) for value in held):
            return False
    return True


def _is_computed(value: ast.expr) -> bool:
    match value:
        case ast.BinOp():
            return True
        case ast.Call(func=ast.Attribute(value=inner, attr=method)):
            return method in ("detach", "clone", "add", "sub", "mul", "lerp") or _is_computed(inner)
    return False
