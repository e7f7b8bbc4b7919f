"""The state that an LSTM gives beside its output, `output, (hidden, cell)`: a tuple in a tuple."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes
from ...facts.values import Result, options
from ..flow.statements import body_around, holder_of
from ..names import canonical

if TYPE_CHECKING:
    from ...facts.values import Call, Value
    from ..history import History

_LSTM = "torch.nn.LSTM"


def is_lstm(module: Value) -> bool:
    """Whether ``module`` is certainly an LSTM of torch."""
    return all(isinstance(it, Result) and canonical(it.call.name) == _LSTM for it in options(module))


def reads_state(run: History, call: Call) -> bool:
    """Whether the function around ``call``, which gives output and state, reads the state."""
    match holder_of(run, call):
        case ast.Assign(targets=[ast.Tuple(elts=[_, state])]):
            names = {node.id for node in ast.walk(state) if isinstance(node, ast.Name)}
            return any(_is_read(node, names) for node in all_nodes(body_around(run, call)))
        case ast.Assign(targets=[ast.Name(id=name)]):
            return any(_takes_second(node, name) for node in all_nodes(body_around(run, call)))
        case ast.Subscript(slice=ast.Constant(1)):
            return True
    return False


def _is_read(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names


def _takes_second(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Subscript(value=ast.Name(id=held), slice=ast.Constant(1)):
            return held == name
        case ast.Assign(targets=[ast.Tuple(elts=[_, _])], value=ast.Name(id=held)):
            return held == name
    return False
