"""Parameters that a call gives to a module in place of its own: `functional_call(model, parameters, x)`."""

from __future__ import annotations

import ast

from ...facts.values import Seq, Value, options

#: Methods that give another tensor, functions of torch of these names too.
_COMPUTING = frozenset(("detach", "clone", "add", "sub", "mul", "lerp"))
_DICTS = ("dict", "OrderedDict")
_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp)


def are_computed(parameters: Value) -> bool:
    """Whether the dict certainly holds other tensors than the module's own."""
    return all(any(map(_holds_computed, _parts(option))) for option in options(parameters))


def _parts(value: Value) -> list[Value]:
    """The dicts that `functional_call` is given: one, or several in a sequence."""
    return value.items if isinstance(value, Seq) and not isinstance(value.node, _COMPREHENSIONS) else [value]


def _holds_computed(value: Value) -> bool:
    match value.node:
        case ast.DictComp(value=computed):
            return _is_computed(computed)
        case ast.Call(func=made, args=[ast.GeneratorExp(elt=pair) | ast.ListComp(elt=pair)]):
            named = isinstance(made, ast.Name | ast.Attribute) and ast.unparse(made).rpartition(".")[2] in _DICTS
            return named and isinstance(pair, ast.Tuple) and len(pair.elts) == 2 and _is_computed(pair.elts[1])
    return False


def _is_computed(value: ast.expr) -> bool:
    match value:
        case ast.BinOp():
            return True
        case ast.Call(func=ast.Attribute(value=inner, attr=method)):
            return method in _COMPUTING or _is_computed(inner)
    return False
